#include "io/safetensors_header.h"

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "slimpipe/core/check.h"

#include "io/safetensors_format.h"

namespace slimpipe::io {
namespace {

using Json = nlohmann::json;

template <typename... Args>
[[noreturn]] void reject(const std::filesystem::path& path, fmt::format_string<Args...> problem,
                         Args&&... args) {
  throw_input_error("safetensors file {}: {}; the file is damaged or not of this format", path.string(),
                    fmt::format(problem, std::forward<Args>(args)...));
}

/// A name from the file, escaped so that it cannot steer a terminal.
std::string json_quoted(const std::string& name) {
  return Json(name).dump(-1, ' ', true, Json::error_handler_t::replace);
}

/// Watches the parser: a repeated key would silently replace the first, and nesting costs memory.
class HeaderGuard {
 public:
  explicit HeaderGuard(const std::filesystem::path& path) : path_(path) {}

  bool operator()(int depth, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::object_start || event == Json::parse_event_t::array_start) {
      if (depth >= kMaxDepth) reject(path_, "its header is nested more than {} deep", kMaxDepth);
      keys_[static_cast<std::size_t>(depth)].clear();
    } else if (event == Json::parse_event_t::key) {
      // Keys are reported one level inside their object.
      auto& seen = keys_[static_cast<std::size_t>(depth - 1)];
      const auto& key = parsed.get_ref<const std::string&>();
      if (!seen.insert(key).second) reject(path_, "the name {} is there twice", json_quoted(key));
    }
    return true;
  }

 private:
  static constexpr int kMaxDepth = 3;  // header, tensor, shape
  const std::filesystem::path& path_;
  std::array<std::set<std::string>, kMaxDepth> keys_;
};

Json parse_json(const std::filesystem::path& path, std::string_view text) {
  if (text.empty() || text.front() != '{') reject(path, "its header does not start with a brace");
  HeaderGuard guard(path);
  try {
    return Json::parse(text.begin(), text.end(), std::ref(guard));
  } catch (const Json::exception& problem) {
    reject(path, "its header is not valid JSON ({})", problem.what());
  }
}

void check_metadata(const std::filesystem::path& path, const Json& json) {
  if (!json.is_object()) reject(path, "{} is no object", kMetadataKey);
  for (const auto& [key, value] : json.items()) {
    if (!value.is_string()) reject(path, "{} {} is no text", kMetadataKey, json_quoted(key));
  }
}

/// An array of integers that fit int64 and are not negative.
std::vector<std::int64_t> parse_integers(const std::filesystem::path& path, const std::string& tensor,
                                         const Json& json, const char* field) {
  const auto found = json.find(field);
  if (found == json.end() || !found->is_array())
    reject(path, "tensor {} has no list '{}'", json_quoted(tensor), field);
  std::vector<std::int64_t> values;
  for (const Json& value : *found) {
    if (!value.is_number_unsigned() ||
        value.get<std::uint64_t>() > std::numeric_limits<std::int64_t>::max()) {
      reject(path, "tensor {}: '{}' holds {}, expected integers from 0 to 2^63 - 1", json_quoted(tensor),
             field, value.dump());
    }
    values.push_back(value.get<std::int64_t>());
  }
  return values;
}

TensorEntry parse_entry(const std::filesystem::path& path, const std::string& name, const Json& json,
                        std::int64_t data_bytes) {
  if (!json.is_object()) reject(path, "tensor {} is no object", json_quoted(name));
  const auto dtype_name = json.find("dtype");
  if (dtype_name == json.end() || !dtype_name->is_string())
    reject(path, "tensor {} has no dtype", json_quoted(name));
  const auto dtype = dtype_of_safetensors(dtype_name->get_ref<const std::string&>());
  if (!dtype) {
    throw_input_error(
        "safetensors file {}: tensor {} has dtype {}, expected F32, BF16, F64 or I32: convert it",
        path.string(), json_quoted(name), json_quoted(dtype_name->get_ref<const std::string&>()));
  }
  TensorEntry entry{.name = name, .dtype = *dtype, .shape = parse_integers(path, name, json, "shape")};
  const auto bytes = tensor_bytes(entry.dtype, entry.shape);
  if (!bytes) reject(path, "tensor {}: its shape has more elements than an int64 counts", json_quoted(name));

  const std::vector<std::int64_t> offsets = parse_integers(path, name, json, "data_offsets");
  if (offsets.size() != 2)
    reject(path, "tensor {} has {} data offsets, expected 2", json_quoted(name), offsets.size());
  if (offsets[0] > offsets[1] || offsets[1] > data_bytes) {
    reject(path, "tensor {}: its data are bytes [{}, {}) of {} (truncated?)", json_quoted(name), offsets[0],
           offsets[1], data_bytes);
  }
  if (offsets[1] - offsets[0] != *bytes) {
    reject(path, "tensor {} has {} bytes of data, expected {} by shape and dtype", json_quoted(name),
           offsets[1] - offsets[0], *bytes);
  }
  entry.offset = offsets[0];
  entry.bytes = *bytes;
  return entry;
}

void sort_and_check_contiguous(const std::filesystem::path& path, std::vector<TensorEntry>& entries,
                               std::int64_t data_bytes) {
  std::ranges::sort(entries, {}, [](const TensorEntry& e) { return std::tie(e.offset, e.bytes, e.name); });
  std::int64_t end = 0;
  for (const TensorEntry& entry : entries) {
    if (entry.offset != end) {
      reject(path, "tensor {} starts at byte {}, expected {}, where the one before it ends",
             json_quoted(entry.name), entry.offset, end);
    }
    end += entry.bytes;
  }
  if (end != data_bytes) reject(path, "it has {} bytes of data, its tensors {}", data_bytes, end);
}

}  // namespace

std::vector<TensorEntry> parse_safetensors_header(const std::filesystem::path& path, std::string_view text,
                                                  std::int64_t data_bytes) {
  const Json json = parse_json(path, text);
  std::vector<TensorEntry> entries;
  for (const auto& [name, value] : json.items()) {
    if (name == kMetadataKey) {
      check_metadata(path, value);
    } else {
      entries.push_back(parse_entry(path, name, value, data_bytes));
    }
  }
  sort_and_check_contiguous(path, entries, data_bytes);
  return entries;
}

}  // namespace slimpipe::io
