// The text of a checkpoint's manifest. What parse_manifest returns can be relied on: sizes are in range, file
// names stay inside the folder, the pieces of every tensor cover it exactly once, and where it has its own
// hash nothing was changed since it was written.

#include <algorithm>
#include <charconv>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <span>

#include "slimpipe/core/check.h"
#include "slimpipe/io/files.h"
#include "slimpipe/train/checkpoint.h"

namespace slimpipe::train {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

namespace {

constexpr const char* kFormat = "slimpipe-checkpoint";
constexpr int kVersion = 1;
constexpr const char* kDtype = "F32";
constexpr const char* kOwnHash = "xxh3_64";  // of everything else in the manifest
constexpr std::int64_t kMaxElements = std::numeric_limits<std::int64_t>::max() / 8;

std::string own_hash(Json manifest) {
  manifest.erase(kOwnHash);
  const std::string text = manifest.dump();
  return io::hash_text(io::hash_bytes(std::as_bytes(std::span(text))));
}

/// Reads one manifest; every problem names the file.
class ManifestParser {
 public:
  ManifestParser(const Json& json, const fs::path& path) : json_(json), path_(path) {}

  Manifest parse() {
    if (json_.at("format") != kFormat) {
      throw_input_error("{}: expected format \"{}\", found {}", path_.string(), kFormat,
                        json_.at("format").dump());
    }
    if (json_.at("version") != kVersion) {
      throw_input_error("{}: expected version {} of the format, found {}: use the slimpipe that wrote it",
                        path_.string(), kVersion, json_.at("version").dump());
    }
    parse_state(json_.at("state"));
    // These three were added within version 1: manifests from before lack them.
    if (const auto stream = json_.find("stream"); stream != json_.end()) parse_stream(*stream);
    if (const auto model = json_.find("model"); model != json_.end()) model->get_to(manifest_.state.model);
    for (const Json& file : json_.at("files")) parse_file(file);
    for (const auto& [name, tensor] : json_.at("tensors").items()) parse_tensor(name, tensor);
    if (const auto hash = json_.find(kOwnHash); hash != json_.end()) check_own_hash(*hash);
    return std::move(manifest_);
  }

 private:
  /// An integer from 0: nlohmann alone would round, wrap or truncate what is none.
  [[nodiscard]] std::int64_t count(const Json& value, const std::string& what) const {
    if (!value.is_number_unsigned() ||
        value.get<std::uint64_t>() > static_cast<std::uint64_t>(kMaxElements)) {
      throw_input_error("{}: {} is {}, expected an integer from 0 to {}", path_.string(), what, value.dump(),
                        kMaxElements);
    }
    return value.get<std::int64_t>();
  }

  [[nodiscard]] std::uint64_t hash(const Json& value, const std::string& what) const {
    const std::string text = value;
    std::uint64_t number = 0;
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, number, 16);
    if (error != std::errc() || stop != end || text.size() != 16) {
      throw_input_error("{}: {} is \"{}\", expected 16 hexadecimal digits", path_.string(), what, text);
    }
    return number;
  }

  /// File names are plain names: nothing outside the checkpoint's folder is ever opened.
  [[nodiscard]] std::string file_name(const Json& value) const {
    std::string name = value;
    if (name.empty() || name != fs::path(name).filename().string() || name == "." || name == ".." ||
        name.find('\0') != std::string::npos) {
      throw_input_error("{}: file name {} is not a plain name inside the checkpoint", path_.string(),
                        value.dump());
    }
    return name;
  }

  void check_own_hash(const Json& recorded) const {
    const std::string found = own_hash(json_);
    if (recorded == found) return;
    throw_input_error("{}: it was changed after it was written: its xxh3-64 is {}, it says {}",
                      path_.string(), found, recorded.dump());
  }

  void parse_state(const Json& state) {
    const auto field = [&](const char* key) { return count(state.at(key), fmt::format("state.{}", key)); };
    for (const char* key : {"step", "cursor"}) {
      constexpr std::int64_t kMost = std::int64_t{1} << 50;  // far beyond any run, and safe to add to
      if (field(key) > kMost) {
        throw_input_error("{}: state.{} is {}, expected at most 2^50", path_.string(), key, field(key));
      }
    }
    manifest_.state = {
        field("step"), field("cursor"), field("updates"), field("skipped"), field("skipped_in_row"), {}, {}};
    const TrainingState& s = manifest_.state;
    if (s.updates > s.step || s.skipped != s.step - s.updates || s.skipped_in_row > s.skipped) {
      throw_input_error(
          "{}: state has {} steps, {} updates, {} skipped and {} in a row, which do not fit together",
          path_.string(), s.step, s.updates, s.skipped, s.skipped_in_row);
    }
  }

  void parse_stream(const Json& stream) {
    const auto field = [&](const char* key) { return count(stream.at(key), fmt::format("stream.{}", key)); };
    const Json& seed = stream.at("seed");
    if (!seed.is_number_unsigned()) {
      throw_input_error("{}: stream.seed is {}, expected an integer from 0 to 2^64 - 1", path_.string(),
                        seed.dump());
    }
    const data::StreamIdentity identity = {
        .file_tokens = field("file_tokens"),
        .file_fingerprint = hash(stream.at("file_fingerprint"), "stream.file_fingerprint"),
        .first_token = field("first_token"),
        .end_token = field("end_token"),
        .sequence_length = field("sequence_length"),
        .shuffle_window = field("shuffle_window"),
        .seed = seed.get<std::uint64_t>()};
    if (identity.sequence_length < 1 || identity.shuffle_window < 1 ||
        identity.end_token > identity.file_tokens || identity.end_token - identity.first_token < 2) {
      throw_input_error("{}: stream {} is not one that can be trained on", path_.string(), stream.dump());
    }
    manifest_.state.stream = identity;
  }

  void parse_file(const Json& file) {
    FileRecord record{file_name(file.at("name")), 0, 0};
    record.bytes = count(file.at("bytes"), "bytes of " + record.name);
    record.hash = hash(file.at("xxh3_64"), "hash of " + record.name);
    if (!files_.insert(record.name).second)
      throw_input_error("{}: {} is listed twice", path_.string(), record.name);
    manifest_.files.push_back(std::move(record));
  }

  void parse_tensor(const std::string& name, const Json& tensor) {
    if (tensor.at("dtype") != kDtype) {
      throw_input_error("{}: tensor {} has dtype {}, expected {}", path_.string(), name,
                        tensor.at("dtype").dump(), kDtype);
    }
    const auto [it, added] = manifest_.tensors.try_emplace(name);
    if (!added) throw_input_error("{}: tensor {} is listed twice", path_.string(), name);
    TensorRecord& record = it->second;
    std::int64_t size = 1;
    for (const Json& dim : tensor.at("shape")) {
      record.shape.push_back(count(dim, "shape of tensor " + name));
      if (record.shape.back() > 0 && size > kMaxElements / record.shape.back())
        throw_input_error("{}: tensor {} has more than {} elements", path_.string(), name, kMaxElements);
      size *= record.shape.back();
    }
    for (const Json& piece : tensor.at("pieces")) {
      record.pieces.push_back({file_name(piece.at("file")),
                               count(piece.at("begin"), "begin of a piece of tensor " + name),
                               count(piece.at("count"), "count of a piece of tensor " + name)});
    }
    check_pieces(name, record, size);
  }

  void check_pieces(const std::string& name, TensorRecord& record, std::int64_t size) const {
    std::ranges::sort(record.pieces, {}, &Piece::begin);
    std::int64_t end = 0;
    for (const Piece& piece : record.pieces) {
      if (!files_.contains(piece.file)) {
        throw_input_error("{}: tensor {} lies in {}, which is not among the files", path_.string(), name,
                          piece.file);
      }
      if (piece.begin != end) {
        throw_input_error("{}: the pieces of tensor {} {} at element {}", path_.string(), name,
                          piece.begin < end ? "overlap" : "leave a gap", std::min(piece.begin, end));
      }
      end += piece.count;
    }
    if (end != size) {
      throw_input_error("{}: the pieces of tensor {} have {} elements, its shape {}", path_.string(), name,
                        end, size);
    }
  }

  const Json& json_;
  const fs::path& path_;
  Manifest manifest_;
  std::set<std::string> files_;
};

Json stream_json(const data::StreamIdentity& stream) {
  return {{"file_tokens", stream.file_tokens},
          {"file_fingerprint", io::hash_text(stream.file_fingerprint)},
          {"first_token", stream.first_token},
          {"end_token", stream.end_token},
          {"sequence_length", stream.sequence_length},
          {"shuffle_window", stream.shuffle_window},
          {"seed", stream.seed}};
}

}  // namespace

std::string to_json(const Manifest& manifest) {
  Json json;
  json["format"] = kFormat;
  json["version"] = kVersion;
  json["state"] = {{"step", manifest.state.step},
                   {"cursor", manifest.state.cursor},
                   {"updates", manifest.state.updates},
                   {"skipped", manifest.state.skipped},
                   {"skipped_in_row", manifest.state.skipped_in_row}};
  if (manifest.state.stream) json["stream"] = stream_json(*manifest.state.stream);
  if (!manifest.state.model.empty()) json["model"] = manifest.state.model;
  json["files"] = Json::array();
  for (const FileRecord& file : manifest.files) {
    json["files"].push_back(
        {{"name", file.name}, {"bytes", file.bytes}, {"xxh3_64", io::hash_text(file.hash)}});
  }
  json["tensors"] = Json::object();
  for (const auto& [name, tensor] : manifest.tensors) {
    Json pieces = Json::array();
    for (const Piece& piece : tensor.pieces) {
      pieces.push_back({{"file", piece.file}, {"begin", piece.begin}, {"count", piece.count}});
    }
    json["tensors"][name] = {{"dtype", kDtype}, {"shape", tensor.shape}, {"pieces", std::move(pieces)}};
  }
  json[kOwnHash] = own_hash(json);
  return json.dump(1) + "\n";
}

Manifest parse_manifest(const std::string& text, const fs::path& path) {
  try {
    const Json json = Json::parse(text);
    return ManifestParser(json, path).parse();
  } catch (const nlohmann::json::exception& problem) {
    throw_input_error("{}: not a checkpoint manifest: {}", path.string(), problem.what());
  }
}

}  // namespace slimpipe::train
