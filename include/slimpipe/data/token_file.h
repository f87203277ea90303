#pragma once
// The token file: a header with a section table, then sections. Read in parts, 64-bit counts.
//
// Layout, little-endian: magic "SLMTOKv1" (8 bytes), u32 header bytes (with the section table), u32 token
// bytes (2 or 4), u64 token count, u64 document count, u64 vocabulary, u32 section count, u32 reserved 0;
// then the section table, {char name[16], u64 offset, u64 bytes} each, names padded with zeros; sections
// start at the next multiple of 64 bytes, with zeros before them, and nothing follows the last. Sections:
// "tokens" (u16 or u32 each), "documents" (u64 start of each document, strictly ascending, the first 0). A
// reader ignores sections it does not know (per-token masks come later).

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace slimpipe::data {

/// A file opened for reading; const members may be called from several threads. A file that is cut while it
/// is open is an InputError of the read that misses something; replacing it by rename, as TokenFileWriter
/// does, changes nothing for those who have it open.
class TokenFile {
 public:
  /// Opens and checks the whole header and section table (sizes, bounds, overlap, order of documents).
  /// Throws InputError naming the file, what is wrong and what to do: missing, empty, wrong magic, truncated
  /// …
  [[nodiscard]] static TokenFile open(const std::filesystem::path& path);
  ~TokenFile();
  TokenFile(TokenFile&&) noexcept;
  TokenFile& operator=(TokenFile&&) noexcept;

  [[nodiscard]] std::int64_t tokens() const;
  [[nodiscard]] std::int64_t documents() const;
  [[nodiscard]] std::int64_t vocabulary() const;
  [[nodiscard]] const std::filesystem::path& path() const;
  /// Start of document i.
  [[nodiscard]] std::int64_t document_start(std::int64_t i) const;
  /// Copies tokens [begin, begin + out.size()) to `out`; throws InputError naming the place of a token
  /// that is >= vocabulary.
  void read(std::int64_t begin, std::span<std::int32_t> out) const;
  /// A hash of token ids spread evenly over the file, of all where it is short: cheap for any size, and
  /// different for another text. Throws as read() does.
  [[nodiscard]] std::uint64_t fingerprint() const;
  /// Reads every token once and throws InputError at the first out of vocabulary.
  void verify() const;

 private:
  struct State;
  explicit TokenFile(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

/// Writes a token file: tokens are appended, `end_document` marks a boundary, `finish` writes the header,
/// syncs and renames from a temporary name, so that a token file is always whole. Tokens are stored in two
/// bytes where the vocabulary allows it. Memory: a buffer and 8 bytes a document.
class TokenFileWriter {
 public:
  /// Throws InputError where no file can be made there.
  TokenFileWriter(const std::filesystem::path& path, std::int64_t vocabulary);
  ~TokenFileWriter();  ///< removes the temporary file where finish() was not reached
  TokenFileWriter(const TokenFileWriter&) = delete;
  TokenFileWriter& operator=(const TokenFileWriter&) = delete;
  /// Throws InputError at a token outside the vocabulary, Error with the system's reason where a write fails.
  void append(std::span<const std::int32_t> tokens);
  /// The next token starts a document. A document without tokens is not counted.
  void end_document();
  /// Throws InputError where no token was appended.
  void finish();
  [[nodiscard]] std::int64_t tokens() const;
  [[nodiscard]] std::int64_t documents() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace slimpipe::data
