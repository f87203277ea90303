#pragma once
// One JSON object a line, appended and flushed: metrics.jsonl. Values are numbers, text, null or nested
// number tables; a number that is not finite is written as null. Whole numbers of a table (below 2^53) are
// written as integers: device indices and bytes among its times.

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace slimpipe::io {

using JsonTable = std::vector<std::pair<std::string, double>>;
using JsonValue = std::variant<double, std::int64_t, std::string, std::nullptr_t, std::vector<double>,
                               JsonTable, std::vector<JsonTable>>;
using JsonObject = std::vector<std::pair<std::string, JsonValue>>;  ///< keeps its order

[[nodiscard]] std::string to_json(const JsonObject& object);

class JsonLinesWriter {
 public:
  /// Appends to `path` (a resumed run goes on in the same file). An unfinished last line, which a killed
  /// run may leave, is removed first. Throws Error where the file cannot be opened.
  explicit JsonLinesWriter(const std::filesystem::path& path);
  /// Throws Error with the system's reason where the line could not be written.
  void write(const JsonObject& object);

 private:
  std::filesystem::path path_;
  std::ofstream stream_;
};

}  // namespace slimpipe::io
