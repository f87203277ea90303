#pragma once
// Small checkpoints made without a training session.

#include <algorithm>
#include <map>
#include <span>
#include <string>

#include "slimpipe/io/files.h"
#include "slimpipe/train/checkpoint.h"

#include "support/file_fixtures.h"

namespace slimpipe::test {

inline constexpr const char* kWeight = "layer.weight";  ///< [3, 4], rows 0 and 1 in file a, row 2 in file b
inline constexpr const char* kBias = "layer.bias";      ///< [2] in file b
inline std::vector<std::int64_t> weight_shape() {
  return {3, 4};
}
inline std::vector<std::int64_t> bias_shape() {
  return {2};
}

inline train::FileRecord write_part(const std::filesystem::path& folder, const std::string& name,
                                    std::vector<io::TensorEntry> entries, const std::vector<float>& values) {
  io::SafetensorsWriter writer(folder / name, std::move(entries), {});
  writer.append(std::as_bytes(std::span(values)));
  const auto result = writer.finish();
  return {name, result.bytes, result.hash};
}

/// A stream that can be trained on, each value another.
inline data::StreamIdentity some_stream() {
  return {.file_tokens = 5000,
          .file_fingerprint = 0x00c0ffee12345678,
          .first_token = 100,
          .end_token = 4000,
          .sequence_length = 32,
          .shuffle_window = 16,
          .seed = 0xffffffffffffffff};
}

/// As many of a model's settings as a test needs.
inline std::map<std::string, std::string> some_model() {
  return {{"model.heads", "4"}, {"model.rope.kind", "plain"}};
}

/// Writes the files into the partial folder of `step` and returns the manifest, ready to be committed.
inline train::Manifest write_parts(const std::filesystem::path& folder, std::int64_t step) {
  const std::filesystem::path partial = train::begin_checkpoint(folder, step);
  const auto entry = [](const char* name, std::vector<std::int64_t> shape) {
    return io::TensorEntry{.name = name, .dtype = DType::kF32, .shape = std::move(shape)};
  };
  train::Manifest manifest;
  manifest.state = {.step = step,
                    .cursor = 4 * step,
                    .updates = step - 1,
                    .skipped = 1,
                    .skipped_in_row = 0,
                    .stream = some_stream(),
                    .model = some_model()};
  manifest.files = {write_part(partial, "a.safetensors", {entry(kWeight, {2, 4})}, {0, 1, 2, 3, 4, 5, 6, 7}),
                    write_part(partial, "b.safetensors", {entry(kWeight, {1, 4}), entry(kBias, {2})},
                               {8, 9, 10, 11, 20, 21})};
  manifest.tensors[kWeight] = {weight_shape(), {{"a.safetensors", 0, 8}, {"b.safetensors", 8, 4}}};
  manifest.tensors[kBias] = {bias_shape(), {{"b.safetensors", 0, 2}}};
  return manifest;
}

inline std::filesystem::path write_checkpoint(const std::filesystem::path& folder, std::int64_t step,
                                              int keep = 0) {
  return train::commit_checkpoint(folder, write_parts(folder, step), keep);
}

/// Reads everything; throws where anything is wrong with the checkpoint.
inline std::vector<float> read_all(const std::filesystem::path& checkpoint) {
  train::CheckpointReader reader(checkpoint);
  std::vector<float> values(14);
  reader.read(kWeight, weight_shape(), 0, std::span(values).first(12));
  reader.read(kBias, bias_shape(), 0, std::span(values).last(2));
  return values;
}

inline std::vector<float> all_values() {
  return {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 20, 21};
}

inline std::vector<std::string> names_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    names.push_back(entry.path().filename().string());
  std::ranges::sort(names);
  return names;
}

}  // namespace slimpipe::test
