#include "data/line_reader.h"

#include <algorithm>

namespace slimpipe::data {

LineReader::LineReader(std::istream& stream, std::size_t max_line_bytes)
    : stream_(stream), max_line_bytes_(max_line_bytes), buffer_(std::size_t{1} << 16) {}

bool LineReader::refill() {
  stream_.read(buffer_.data(), std::ssize(buffer_));
  begin_ = 0;
  end_ = static_cast<std::size_t>(stream_.gcount());
  return end_ > 0;
}

LineReader::Status LineReader::next(std::string& line) {
  line.clear();
  if (begin_ == end_ && !refill()) return Status::kEnd;
  do {
    const char* from = buffer_.data() + begin_;
    const char* to = std::find(from, static_cast<const char*>(buffer_.data() + end_), '\n');
    const auto length = static_cast<std::size_t>(to - from);
    if (length > max_line_bytes_ - line.size()) return Status::kTooLong;
    line.append(from, length);
    begin_ += length;
    if (begin_ < end_) {
      ++begin_;  // the '\n'
      return Status::kLine;
    }
  } while (refill());
  return Status::kLine;
}

}  // namespace slimpipe::data
