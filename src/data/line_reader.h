#pragma once
// Lines of a file, with a bound on how long one may get.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "slimpipe/io/read_file.h"

namespace slimpipe::data {

class LineReader {
 public:
  LineReader(const io::ReadFile& file, std::size_t max_line_bytes);
  enum class Status { kLine, kEnd, kTooLong };
  /// Reads the next line into `line`, without its '\n'. The last line may lack one.
  Status next(std::string& line);

 private:
  bool refill();

  const io::ReadFile& file_;
  std::int64_t offset_ = 0;  ///< of what comes next from the file
  std::size_t max_line_bytes_;
  std::vector<char> buffer_;
  std::size_t begin_ = 0;  ///< what is not handed out yet: [begin_, end_)
  std::size_t end_ = 0;
};

}  // namespace slimpipe::data
