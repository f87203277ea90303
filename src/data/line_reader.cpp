#include "data/line_reader.h"

#include <algorithm>
#include <span>

namespace slimpipe::data {

LineReader::LineReader(const io::ReadFile& file, std::size_t max_line_bytes)
    : file_(file), max_line_bytes_(max_line_bytes), buffer_(std::size_t{1} << 16) {}

bool LineReader::refill() {
  begin_ = 0;
  end_ = file_.read(offset_, std::as_writable_bytes(std::span(buffer_)));
  offset_ += static_cast<std::int64_t>(end_);
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
