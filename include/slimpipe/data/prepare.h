#pragma once
// `slimpipe data prepare` and `inspect`.

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace slimpipe::data {

/// The built-in tokenizer: ids 0..255 are bytes, 256 ends a document.
inline constexpr std::int32_t kByteVocabulary = 257;
inline constexpr std::int32_t kEndOfDocument = 256;
[[nodiscard]] std::vector<std::int32_t> encode_bytes(std::string_view text);
/// Bytes of the ids; the end of a document becomes "<|end|>", an unknown id throws InputError.
[[nodiscard]] std::string decode_bytes(const std::vector<std::int32_t>& tokens);

enum class TextFormat { kAuto, kText, kJsonLines };

struct PrepareOptions {
  std::vector<std::filesystem::path>
      inputs;  ///< a text file is one document, a JSON line with a string "text" too
  std::filesystem::path output;
  TextFormat format = TextFormat::kAuto;  ///< auto: .jsonl and .json are JSON lines, the rest text
  std::string text_key = "text";
};
struct PrepareResult {
  std::int64_t documents = 0;
  std::int64_t tokens = 0;
};
/// Streams inputs to a token file, kEndOfDocument after each document; empty documents and blank lines are
/// left out. Text is taken as bytes. Throws InputError with file and line; nothing is left behind then.
PrepareResult prepare(const PrepareOptions& options);
/// Human-readable: counts, document lengths, and the first tokens of the first `samples` documents, decoded
/// where the vocabulary is the built-in tokenizer's. Reads every token once, to check it.
[[nodiscard]] std::string inspect(const std::filesystem::path& path, int samples);

}  // namespace slimpipe::data
