#include "slimpipe/core/check.h"
#include "slimpipe/data/prepare.h"

namespace slimpipe::data {

std::vector<std::int32_t> encode_bytes(std::string_view text) {
  std::vector<std::int32_t> tokens;
  tokens.reserve(text.size());
  for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
  return tokens;
}

std::string decode_bytes(const std::vector<std::int32_t>& tokens) {
  std::string text;
  text.reserve(tokens.size());
  for (const std::int32_t token : tokens) {
    if (token == kEndOfDocument) {
      text += "<|end|>";
    } else if (token >= 0 && token < kEndOfDocument) {
      text += static_cast<char>(token);
    } else {
      throw_input_error("token {} is not of the byte tokenizer, which has {}", token, kByteVocabulary);
    }
  }
  return text;
}

}  // namespace slimpipe::data
