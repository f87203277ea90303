#include <algorithm>
#include <fmt/ranges.h>

#include "slimpipe/core/check.h"
#include "slimpipe/data/prepare.h"
#include "slimpipe/data/token_file.h"

namespace slimpipe::data {
namespace {

constexpr std::int64_t kShownTokens = 64;

std::int64_t document_length(const TokenFile& file, std::int64_t i) {
  const std::int64_t end = i + 1 < file.documents() ? file.document_start(i + 1) : file.tokens();
  return end - file.document_start(i);
}

std::string describe_lengths(const TokenFile& file) {
  std::int64_t shortest = file.tokens();
  std::int64_t longest = 0;
  for (std::int64_t i = 0; i < file.documents(); ++i) {
    const std::int64_t length = document_length(file, i);
    shortest = std::min(shortest, length);
    longest = std::max(longest, length);
  }
  const double mean = static_cast<double>(file.tokens()) / static_cast<double>(file.documents());
  return fmt::format("shortest {}, mean {:.1f}, longest {} tokens", shortest, mean, longest);
}

/// Text on one line that cannot steer a terminal.
std::string escape(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '\n') {
      escaped += "\\n";
    } else if (c == '\t') {
      escaped += "\\t";
    } else if (static_cast<unsigned char>(c) < ' ' || c == '\x7f') {
      escaped += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    } else {
      escaped += c;
    }
  }
  return escaped;
}

std::string show_start(const TokenFile& file, std::int64_t document) {
  const std::int64_t length = document_length(file, document);
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(std::min(length, kShownTokens)));
  file.read(file.document_start(document), tokens);
  std::string text = file.vocabulary() == kByteVocabulary ? escape(decode_bytes(tokens))
                                                          : fmt::format("{}", fmt::join(tokens, " "));
  if (length > kShownTokens) text += " ...";
  return text;
}

}  // namespace

std::string inspect(const std::filesystem::path& path, int samples) {
  const TokenFile file = TokenFile::open(path);
  file.verify();
  std::string text =
      fmt::format("{}\n  tokens      {}\n  documents   {} ({})\n  vocabulary  {}{}\n", path.string(),
                  file.tokens(), file.documents(), describe_lengths(file), file.vocabulary(),
                  file.vocabulary() == kByteVocabulary ? " (bytes and the end of a document)" : "");
  for (std::int64_t i = 0; i < std::min<std::int64_t>(samples, file.documents()); ++i) {
    text += fmt::format("  document {} ({} tokens): {}\n", i, document_length(file, i), show_start(file, i));
  }
  return text;
}

}  // namespace slimpipe::data
