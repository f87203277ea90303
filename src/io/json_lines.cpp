#include "slimpipe/io/json_lines.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <nlohmann/json.hpp>

#include "slimpipe/core/check.h"
#include "slimpipe/io/files.h"

namespace slimpipe::io {
namespace {

using Json = nlohmann::ordered_json;  // writes non-finite numbers as null

template <typename T>
Json json_of(const T& value) {
  return value;
}

/// Whole numbers of a table are indices and counts, which some readers take as such only without a
/// fraction. Doubles count exactly up to 2^53.
Json number_of(double value) {
  constexpr double kExactCounts = 9007199254740992;  // 2^53
  const bool whole = std::abs(value) < kExactCounts && std::trunc(value) == value;
  return whole ? Json(static_cast<std::int64_t>(value)) : Json(value);
}

Json json_of(const JsonTable& table) {
  Json json = Json::object();
  for (const auto& [key, value] : table) json[key] = number_of(value);
  return json;
}

Json json_of(const std::vector<JsonTable>& tables) {
  Json json = Json::array();
  for (const JsonTable& table : tables) json.push_back(json_of(table));
  return json;
}

/// The length of `path` up to its last newline.
std::uintmax_t whole_lines_bytes(const std::filesystem::path& path, std::uintmax_t bytes) {
  std::ifstream stream(path, std::ios::binary);
  std::array<char, 4096> block;
  while (bytes > 0) {
    const std::uintmax_t count = std::min<std::uintmax_t>(bytes, block.size());
    stream.seekg(static_cast<std::streamoff>(bytes - count));
    if (!stream.read(block.data(), static_cast<std::streamsize>(count))) {
      throw_error("reading {} failed: {}", path.string(), system_reason(errno));
    }
    for (std::uintmax_t i = count; i > 0; --i) {
      if (block[i - 1] == '\n') return bytes - count + i;
    }
    bytes -= count;
  }
  return 0;
}

void remove_unfinished_line(const std::filesystem::path& path) {
  std::error_code missing;
  const std::uintmax_t bytes = std::filesystem::file_size(path, missing);
  if (missing) return;
  const std::uintmax_t whole = whole_lines_bytes(path, bytes);
  if (whole == bytes) return;
  std::error_code failure;
  std::filesystem::resize_file(path, whole, failure);
  if (failure) throw_error("cannot mend the last line of {}: {}", path.string(), failure.message());
}

}  // namespace

std::string to_json(const JsonObject& object) {
  Json json = Json::object();
  for (const auto& [key, value] : object) {
    json[key] = std::visit([](const auto& held) { return json_of(held); }, value);
  }
  // Text may be a system's message in any encoding: what is not UTF-8 is replaced, never thrown at.
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

JsonLinesWriter::JsonLinesWriter(const std::filesystem::path& path) : path_(path) {
  remove_unfinished_line(path_);
  errno = 0;
  stream_.open(path_, std::ios::binary | std::ios::app);
  if (!stream_) throw_error("cannot open {} to append to it: {}", path_.string(), system_reason(errno));
}

void JsonLinesWriter::write(const JsonObject& object) {
  errno = 0;
  stream_ << to_json(object) << '\n' << std::flush;
  if (!stream_) throw_error("cannot write {}: {}", path_.string(), system_reason(errno));
}

}  // namespace slimpipe::io
