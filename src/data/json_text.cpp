#include "data/json_text.h"

#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "slimpipe/core/check.h"

namespace slimpipe::data {
namespace {

using Json = nlohmann::json;

/// Receives the line's tokens and keeps the wanted string.
class TextHandler : public nlohmann::json_sax<Json> {
 public:
  explicit TextHandler(std::string_view wanted_key) : wanted_key_(wanted_key) {}

  [[nodiscard]] std::optional<std::string>& text() { return text_; }

  bool null() override { return other_value("null"); }
  bool boolean(bool) override { return other_value("a boolean"); }
  bool number_integer(number_integer_t) override { return other_value("a number"); }
  bool number_unsigned(number_unsigned_t) override { return other_value("a number"); }
  bool number_float(number_float_t, const string_t&) override { return other_value("a number"); }
  bool binary(binary_t&) override { return other_value("binary data"); }
  bool string(string_t& value) override {
    other_value_unless_wanted(value);
    return true;
  }
  bool key(string_t& name) override {
    wanted_ = depth_ == 1 && name == wanted_key_;
    return true;
  }
  bool start_object(std::size_t) override {
    if (depth_ > 0) other_value("an object");
    ++depth_;
    return true;
  }
  bool end_object() override { return close(); }
  bool start_array(std::size_t) override {
    other_value("an array");
    ++depth_;
    return true;
  }
  bool end_array() override { return close(); }
  bool parse_error(std::size_t position, const std::string&, const Json::exception& failure) override {
    std::string_view reason = failure.what();
    // The library's own number and place, "[json.exception…] parse error at line 1, column 9: ", say less
    // than the file and line that the caller adds.
    if (const auto colon = reason.find(": "); colon != std::string_view::npos)
      reason.remove_prefix(colon + 2);
    throw_input_error("not valid JSON at byte {}: {}; expected one whole JSON object a line", position,
                      reason);
  }

 private:
  bool other_value(std::string_view what) {
    if (depth_ == 0) throw_input_error("expected a JSON object, found {}", what);
    if (wanted_) throw_input_error("\"{}\" is {}, expected a string", wanted_key_, what);
    return true;
  }
  void other_value_unless_wanted(std::string& value) {
    if (depth_ == 0) other_value("a string");
    if (wanted_ && text_) throw_input_error("\"{}\" is there twice, expected one text", wanted_key_);
    if (wanted_) text_ = std::move(value);
    wanted_ = false;
  }
  bool close() {
    --depth_;
    return true;
  }

  std::string_view wanted_key_;
  int depth_ = 0;
  bool wanted_ = false;  ///< the next value is the wanted key's
  std::optional<std::string> text_;
};

}  // namespace

std::string json_text(std::string_view line, std::string_view key) {
  TextHandler handler(key);
  Json::sax_parse(line.begin(), line.end(), &handler);
  if (!handler.text()) throw_input_error("the object has no \"{}\"", key);
  return std::move(*handler.text());
}

}  // namespace slimpipe::data
