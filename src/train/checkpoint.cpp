#include "slimpipe/train/checkpoint.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fmt/ranges.h>
#include <functional>
#include <numeric>

#include "slimpipe/core/check.h"
#include "slimpipe/core/log.h"
#include "slimpipe/io/files.h"

namespace slimpipe::train {

namespace fs = std::filesystem;

namespace {

constexpr const char* kDeletedSuffix = ".deleted";
constexpr const char* kManifestName = "manifest.json";

std::int64_t elements(const std::vector<std::int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

/// The step in a folder's name; nothing where it is not the name of a checkpoint ("step-00000100.partial").
std::optional<std::int64_t> step_in(const std::string& name) {
  constexpr std::string_view kPrefix = "step-";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  std::int64_t step = 0;
  const char* end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(name.data() + kPrefix.size(), end, step);
  if (error != std::errc() || stop != end || name != checkpoint_name(step)) return std::nullopt;
  return step;
}

/// A folder, or whatever else has the name of a checkpoint.
struct Candidate {
  std::int64_t step = 0;
  fs::path path;
};

/// Oldest first. A write that was not finished has another name and is none of them.
std::vector<Candidate> candidates(const fs::path& folder) {
  std::vector<Candidate> found;
  std::error_code error;
  fs::directory_iterator entry(folder, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    const std::optional<std::int64_t> step = step_in(entry->path().filename().string());
    if (step) found.push_back({.step = *step, .path = entry->path()});
  }
  if (error && error != std::errc::no_such_file_or_directory) {
    throw_error("cannot read the folder of checkpoints {}: {}", folder.string(),
                io::system_reason(error.value()));
  }
  std::ranges::sort(found, {}, &Candidate::step);
  return found;
}

/// How much of a checkpoint is compared with its manifest.
enum class Thoroughness : std::uint8_t { kSizes, kContents };

/// Why nothing can go on from a checkpoint; empty where nothing is wrong with it. What the system does not
/// let us read is an Error, since it may well be whole.
std::string damage_of(const Candidate& checkpoint, Thoroughness thoroughness) {
  std::error_code error;
  if (!fs::is_directory(checkpoint.path, error)) return "it is not a folder";
  const fs::path manifest_file = checkpoint.path / kManifestName;
  if (!fs::exists(manifest_file, error)) return fmt::format("its {} is missing", kManifestName);
  const std::string text = io::read_text(manifest_file);
  Manifest manifest;
  try {
    manifest = parse_manifest(text, manifest_file);
  } catch (const InputError& problem) {
    return problem.what();
  }
  if (manifest.state.step != checkpoint.step) {
    return fmt::format("its {} is of step {}: the folder's name was {}", kManifestName, manifest.state.step,
                       checkpoint_name(manifest.state.step));
  }
  for (const FileRecord& file : manifest.files) {
    const auto size = fs::file_size(checkpoint.path / file.name, error);
    if (error) return fmt::format("its file {} is missing: {}", file.name, error.message());
    if (static_cast<std::int64_t>(size) != file.bytes) {
      return fmt::format("its file {} has {} bytes, the manifest says {}", file.name, size, file.bytes);
    }
    if (thoroughness == Thoroughness::kContents && io::hash_file(checkpoint.path / file.name) != file.hash) {
      return fmt::format("its file {} has another content than when it was written", file.name);
    }
  }
  return {};
}

/// What to do where this checkpoint is no good: which folders to put aside to go on from the newest one
/// before it that is whole, to the last byte.
std::string way_on_without(const fs::path& checkpoint) {
  const std::vector<Candidate> all = candidates(checkpoint.parent_path());
  auto at = std::ranges::find(all.rbegin(), all.rend(), checkpoint.filename(),
                              [](const Candidate& found) { return found.path.filename(); });
  std::vector<std::string> in_the_way;
  for (; at != all.rend(); ++at) {
    if (!in_the_way.empty() && damage_of(*at, Thoroughness::kContents).empty()) {
      return fmt::format("Remove or rename {} to go on from the newest whole checkpoint before it, {}",
                         fmt::join(in_the_way, " and "), at->path.string());
    }
    in_the_way.push_back(at->path.string());
  }
  return "There is no whole checkpoint before it: mend it from a copy, or start a new run in another "
         "--run-dir";
}

/// What is damaged is neither deleted, since it may be all that is left of a step, nor counted.
void delete_old(const fs::path& folder, int keep) {
  if (keep <= 0) return;
  std::vector<fs::path> complete;
  for (const Candidate& found : candidates(folder)) {
    const std::string damage = damage_of(found, Thoroughness::kSizes);
    if (damage.empty()) {
      complete.push_back(found.path);
    } else {
      log::warning("checkpoint {} is neither deleted nor counted among those that are kept: {}",
                   found.path.string(), damage);
    }
  }
  for (std::ptrdiff_t i = 0; i < std::ssize(complete) - keep; ++i) {
    // Renamed first: a process that is killed while it deletes leaves nothing that looks like a checkpoint.
    const fs::path doomed = complete[i].string() + kDeletedSuffix;
    std::error_code error;
    fs::rename(complete[i], doomed, error);
    if (!error) fs::remove_all(doomed, error);
    if (error) log::warning("cannot delete the old checkpoint {}: {}", complete[i].string(), error.message());
  }
}

}  // namespace

std::string stored_name(const std::string& parameter, Role role) {
  switch (role) {
    case Role::kMaster:
      return parameter;
    case Role::kMoment1:
      return "moment1/" + parameter;
    case Role::kMoment2:
      return "moment2/" + parameter;
  }
  return parameter;
}

std::optional<std::int64_t> first_not_finite(std::span<const float> values) {
  const auto found = std::ranges::find_if(values, [](float value) { return !std::isfinite(value); });
  if (found == values.end()) return std::nullopt;
  return found - values.begin();
}

std::string checkpoint_name(std::int64_t step) {
  return fmt::format("step-{:08}", step);
}

namespace {

/// What an earlier run was killed in the middle of deleting.
void finish_deleting(const fs::path& folder) {
  std::vector<fs::path> doomed;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().extension() == kDeletedSuffix) doomed.push_back(entry.path());
  }
  for (const fs::path& path : doomed) fs::remove_all(path, error);
}

}  // namespace

fs::path begin_checkpoint(const fs::path& folder, std::int64_t step) {
  finish_deleting(folder);
  fs::path partial = folder / (checkpoint_name(step) + ".partial");
  std::error_code error;
  fs::remove_all(partial, error);
  if (!error) fs::create_directories(partial, error);
  if (error) throw_error("cannot create the checkpoint folder {}: {}", partial.string(), error.message());
  return partial;
}

fs::path commit_checkpoint(const fs::path& folder, const Manifest& manifest, int keep) {
  const std::string name = checkpoint_name(manifest.state.step);
  const fs::path partial = folder / (name + ".partial");
  fs::path final = folder / name;
  io::write_text_atomically(partial / kManifestName, to_json(manifest));
  io::sync_directory(partial);
  std::error_code error;
  if (fs::exists(final, error)) {  // the same step was saved before (a run resumed from an older one)
    const fs::path old = folder / (name + ".replaced");
    fs::remove_all(old, error);
    if (!error) fs::rename(final, old, error);
  }
  if (!error) fs::rename(partial, final, error);
  if (error) throw_error("cannot rename {} to {}: {}", partial.string(), final.string(), error.message());
  io::sync_directory(folder);
  fs::remove_all(folder / (name + ".replaced"), error);
  try {
    delete_old(folder, keep);
  } catch (const std::exception& problem) {
    log::warning("old checkpoints are not deleted: {}", problem.what());
  }
  return final;
}

std::optional<fs::path> newest_checkpoint(const fs::path& folder) {
  const std::vector<Candidate> all = candidates(folder);
  if (all.empty()) return std::nullopt;
  const fs::path& newest = all.back().path;
  if (const std::string damage = damage_of(all.back(), Thoroughness::kSizes); !damage.empty()) {
    throw_input_error("nothing can go on from the newest checkpoint, {}: {}. {}", newest.string(), damage,
                      way_on_without(newest));
  }
  return newest;
}

CheckpointReader::CheckpointReader(fs::path checkpoint)
    : checkpoint_(std::move(checkpoint)),
      manifest_(parse_manifest(manifest_text(checkpoint_), checkpoint_ / kManifestName)) {}

io::SafetensorsReader& CheckpointReader::open(const std::string& file, const std::string& tensor) {
  if (const auto it = files_.find(file); it != files_.end()) return it->second;
  const auto record = std::ranges::find(manifest_.files, file, &FileRecord::name);
  if (record == manifest_.files.end()) {
    throw_input_error("{}: tensor {} lies in {}, which the manifest does not list", checkpoint_.string(),
                      tensor, file);
  }
  const fs::path path = checkpoint_ / file;
  std::error_code missing;
  if (!fs::exists(path, missing)) {
    throw_input_error("{}: the file is missing (needed for tensor {}). {}", path.string(), tensor,
                      way_on_without(checkpoint_));
  }
  const std::uint64_t hash = io::hash_file(path);
  if (hash != record->hash) {
    throw_input_error(
        "{}: the file is damaged (needed for tensor {}): its xxh3-64 is {}, the manifest says {}. {}",
        path.string(), tensor, io::hash_text(hash), io::hash_text(record->hash), way_on_without(checkpoint_));
  }
  return files_.emplace(file, io::SafetensorsReader(path)).first->second;
}

const TensorRecord& CheckpointReader::record(const std::string& stored_name,
                                             const std::vector<std::int64_t>& shape) const {
  const auto it = manifest_.tensors.find(stored_name);
  if (it == manifest_.tensors.end()) {
    throw_input_error("{}: there is no tensor {}; is it a checkpoint of another model?", checkpoint_.string(),
                      stored_name);
  }
  if (it->second.shape != shape) {
    throw_input_error("{}: tensor {} has the shape [{}], this run's model needs [{}]", checkpoint_.string(),
                      stored_name, fmt::join(it->second.shape, ", "), fmt::join(shape, ", "));
  }
  return it->second;
}

void CheckpointReader::read(const std::string& stored_name, const std::vector<std::int64_t>& shape,
                            std::int64_t begin, std::span<float> out) {
  const TensorRecord& found = record(stored_name, shape);
  const std::int64_t end = begin + std::ssize(out);
  SLIMPIPE_CHECK(begin >= 0 && end <= elements(shape), "elements [{}, {}) of {}", begin, end, stored_name);
  std::int64_t filled = 0;
  for (const Piece& piece : found.pieces) {
    const std::int64_t from = std::max(begin, piece.begin);
    const std::int64_t to = std::min(end, piece.begin + piece.count);
    if (from >= to) continue;
    io::SafetensorsReader& file = open(piece.file, stored_name);
    const io::TensorEntry* entry = file.find(stored_name);
    if (entry == nullptr || entry->dtype != DType::kF32 ||
        entry->bytes != piece.count * size_of(DType::kF32)) {
      throw_input_error("{}: tensor {} is not there as {} fp32 numbers", (checkpoint_ / piece.file).string(),
                        stored_name, piece.count);
    }
    file.read(*entry, (from - piece.begin) * size_of(DType::kF32),
              std::as_writable_bytes(out.subspan(from - begin, to - from)));
    filled += to - from;
  }
  if (filled != std::ssize(out)) {
    throw_input_error("{}: the pieces of tensor {} cover {} of the elements [{}, {})", checkpoint_.string(),
                      stored_name, filled, begin, end);
  }
  if (const auto place = first_not_finite(out)) {
    throw_input_error(
        "{}: element {} of tensor {} is {}: the run had diverged when it was saved. {}, with a lower "
        "training.lr",
        checkpoint_.string(), begin + *place, stored_name, out[*place], way_on_without(checkpoint_));
  }
}

std::string manifest_text(const fs::path& checkpoint) {
  return io::read_text(checkpoint / kManifestName);
}

}  // namespace slimpipe::train
