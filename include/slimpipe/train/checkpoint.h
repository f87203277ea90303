#pragma once
// Checkpoints: logical tensors, independent of how the run was laid out.
//
//   <folder>/step-00000100/manifest.json          written last
//   <folder>/step-00000100/device-00000.safetensors, one file a device, in parallel
//
// Tensors are named as in the parameter table; the fp32 master is NAME itself, the moments are
// "moment1/NAME" and "moment2/NAME". The manifest has the run's state, with what identifies the model and the
// samples it was trained on, a hash of itself, and lists files (bytes, xxh3-64 hash) and, for every logical
// tensor, the pieces it is stored in (file, first element, count): a later sharding adds pieces, not a new
// format. Everything is written to "<name>.partial", synced and renamed: a folder with a checkpoint's name
// that lacks something was damaged afterwards, and is reported, never passed over.

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "slimpipe/data/batch_source.h"
#include "slimpipe/io/safetensors.h"
#include "slimpipe/model/parameters.h"

namespace slimpipe::train {

/// What a run goes on from besides its tensors.
struct TrainingState {
  std::int64_t step = 0;     ///< steps done
  std::int64_t cursor = 0;   ///< samples consumed
  std::int64_t updates = 0;  ///< optimizer updates applied (steps less the skipped ones)
  std::int64_t skipped = 0;  ///< non-finite steps so far
  std::int64_t skipped_in_row = 0;
  /// The stream that the cursor is a place in; absent in checkpoints from before it was recorded.
  std::optional<data::StreamIdentity> stream;
  /// The model's settings (config::identity_of); empty in checkpoints from before they were recorded.
  std::map<std::string, std::string> model;
  bool operator==(const TrainingState&) const = default;
};

/// One parameter's three roles, in the order they are stored.
enum class Role : std::uint8_t { kMaster, kMoment1, kMoment2 };
inline constexpr Role kRoles[] = {Role::kMaster, Role::kMoment1, Role::kMoment2};
[[nodiscard]] std::string stored_name(const std::string& parameter, Role role);

struct FileRecord {
  std::string name;
  std::int64_t bytes = 0;
  std::uint64_t hash = 0;
};

struct Piece {
  std::string file;
  std::int64_t begin = 0;  ///< first element in the logical tensor, flattened
  std::int64_t count = 0;
};

struct TensorRecord {
  std::vector<std::int64_t> shape;
  std::vector<Piece> pieces;
};

struct Manifest {
  TrainingState state;
  std::vector<FileRecord> files;
  std::map<std::string, TensorRecord> tensors;  ///< by stored name
};

[[nodiscard]] std::string to_json(const Manifest& manifest);
/// Throws InputError naming `path` and what is wrong.
[[nodiscard]] Manifest parse_manifest(const std::string& text, const std::filesystem::path& path);

/// What identifies a checkpoint: its manifest, which has the hashes of its files.
[[nodiscard]] std::string manifest_text(const std::filesystem::path& checkpoint);

/// Index of the first infinity or NaN.
[[nodiscard]] std::optional<std::int64_t> first_not_finite(std::span<const float> values);

/// The folder name of a step's checkpoint.
[[nodiscard]] std::string checkpoint_name(std::int64_t step);
/// Creates an empty "<name>.partial" (removing a left-over) and returns it.
std::filesystem::path begin_checkpoint(const std::filesystem::path& folder, std::int64_t step);
/// Writes the manifest, syncs, renames the partial folder to its final name (replacing one of the same step)
/// and deletes complete checkpoints beyond the newest `keep` (0 keeps all).
std::filesystem::path commit_checkpoint(const std::filesystem::path& folder, const Manifest& manifest,
                                        int keep);
/// The newest checkpoint, whose files are all there with the right sizes: contents are compared as they are
/// read. Throws InputError where it is damaged, never taking an older one for it.
[[nodiscard]] std::optional<std::filesystem::path> newest_checkpoint(const std::filesystem::path& folder);

/// Reads logical tensors of one checkpoint. A file is opened, and its hash compared with the manifest, when
/// the first piece of it is asked for; a wrong one is an InputError naming file and tensor.
class CheckpointReader {
 public:
  /// `checkpoint` is the folder of one step. Reads its manifest alone; InputError where there is none or it
  /// cannot be relied on.
  explicit CheckpointReader(std::filesystem::path checkpoint);
  [[nodiscard]] const Manifest& manifest() const { return manifest_; }
  /// What the manifest says of a tensor, which must have `shape`.
  [[nodiscard]] const TensorRecord& record(const std::string& stored_name,
                                           const std::vector<std::int64_t>& shape) const;
  /// Elements [begin, begin + out.size()) of the tensor, which must have `shape`. An InputError where one is
  /// not finite: no run could go on from it.
  void read(const std::string& stored_name, const std::vector<std::int64_t>& shape, std::int64_t begin,
            std::span<float> out);

 private:
  io::SafetensorsReader& open(const std::string& file, const std::string& tensor);
  std::filesystem::path checkpoint_;
  Manifest manifest_;
  std::map<std::string, io::SafetensorsReader> files_;
};

}  // namespace slimpipe::train
