#pragma once
// The folder of a run: where everything it writes has its place.
//
//   config.yaml      the resolved configuration
//   metrics.jsonl    a line a step
//   summary.json     written at the end
//   failure.json     what ended a failed run
//   logs/rank-N.log  every line of rank N
//   trace-N.json     the trace of rank N's devices
//   checkpoints/

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

namespace slimpipe::io {

class RunFolder {
 public:
  /// Names the places in `path` and touches nothing: for the ranks that do not create the folder.
  explicit RunFolder(const std::filesystem::path& path) : path_(path) {}

  /// Makes the folder, its logs/ and checkpoints/, and clears the failure of an earlier run. One process
  /// calls it, before any other uses the folder, and keeps the result: as long as it or a copy of it lives,
  /// the folder is locked against another run. Throws InputError where the folder cannot be made, is in use
  /// by another run, or holds metrics or checkpoints of a run already and `resume` is false.
  [[nodiscard]] static RunFolder create(const std::filesystem::path& path, bool resume);

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] std::filesystem::path config() const { return path_ / "config.yaml"; }
  [[nodiscard]] std::filesystem::path metrics() const { return path_ / "metrics.jsonl"; }
  [[nodiscard]] std::filesystem::path summary() const { return path_ / "summary.json"; }
  [[nodiscard]] std::filesystem::path failure() const { return path_ / "failure.json"; }
  [[nodiscard]] std::filesystem::path checkpoints() const { return path_ / "checkpoints"; }
  [[nodiscard]] std::filesystem::path log(int rank) const;
  [[nodiscard]] std::filesystem::path trace(int rank) const;

  /// What the creating process wrote into the folder's .lock, read anew; empty where there is none. Another
  /// process that finds another mark looks at another folder.
  [[nodiscard]] std::string mark() const;
  /// Whether `path` is still the folder that create() locked; true where another process did.
  [[nodiscard]] bool is_still_there() const;

  /// Writes {"cause": text} to failure.json if no process of the run has done so, and returns whether this
  /// was the first: only the first shows its cause to the user. True as well where the file cannot be
  /// written for another reason, since a cause shown twice is better than one never shown.
  [[nodiscard]] bool claim_failure(std::string_view text) const noexcept;

 private:
  std::filesystem::path path_;
  std::shared_ptr<const int> lock_;  ///< descriptor of the locked file, of the creating process alone
};

}  // namespace slimpipe::io
