#pragma once
// Lines of a stream, with a bound on how long one may get.

#include <cstddef>
#include <istream>
#include <string>
#include <vector>

namespace slimpipe::data {

class LineReader {
 public:
  LineReader(std::istream& stream, std::size_t max_line_bytes);
  enum class Status { kLine, kEnd, kTooLong };
  /// Reads the next line into `line`, without its '\n'. The last line may lack one.
  Status next(std::string& line);

 private:
  bool refill();

  std::istream& stream_;
  std::size_t max_line_bytes_;
  std::vector<char> buffer_;
  std::size_t begin_ = 0;  ///< what is not handed out yet: [begin_, end_)
  std::size_t end_ = 0;
};

}  // namespace slimpipe::data
