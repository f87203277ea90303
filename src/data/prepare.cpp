#include "slimpipe/data/prepare.h"

#include <algorithm>
#include <array>
#include <span>

#include "slimpipe/core/check.h"
#include "slimpipe/data/token_file.h"
#include "slimpipe/io/read_file.h"

#include "data/json_text.h"
#include "data/line_reader.h"

namespace slimpipe::data {
namespace {

/// A longer line is more likely a file that is no JSON lines at all than one document.
constexpr std::size_t kMaxLineBytes = std::size_t{64} << 20;
constexpr std::size_t kChunkBytes = std::size_t{1} << 16;

void end_document(TokenFileWriter& writer) {
  writer.append(std::array{kEndOfDocument});
  writer.end_document();
}

void add_text_file(const std::filesystem::path& path, TokenFileWriter& writer) {
  const io::ReadFile file(path);
  std::string chunk(kChunkBytes, '\0');
  std::int64_t offset = 0;
  while (const std::size_t got = file.read(offset, std::as_writable_bytes(std::span(chunk)))) {
    writer.append(encode_bytes(std::string_view(chunk).substr(0, got)));
    offset += static_cast<std::int64_t>(got);
  }
  if (offset > 0) end_document(writer);
}

void add_json_lines_file(const std::filesystem::path& path, const std::string& key, TokenFileWriter& writer) {
  const io::ReadFile file(path);
  LineReader lines(file, kMaxLineBytes);
  std::string line;
  for (std::int64_t number = 1;; ++number) {
    const LineReader::Status status = lines.next(line);
    if (status == LineReader::Status::kEnd) break;
    if (status == LineReader::Status::kTooLong) {
      throw_input_error("{}:{}: the line is longer than {} bytes; expected one JSON object a line",
                        path.string(), number, kMaxLineBytes);
    }
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    std::string text;
    try {
      text = json_text(line, key);
    } catch (const InputError& problem) {
      throw_input_error("{}:{}: {}", path.string(), number, problem.what());
    }
    if (text.empty()) continue;
    writer.append(encode_bytes(text));
    end_document(writer);
  }
}

bool is_json_lines(const std::filesystem::path& path, TextFormat format) {
  if (format != TextFormat::kAuto) return format == TextFormat::kJsonLines;
  return path.extension() == ".jsonl" || path.extension() == ".json";
}

/// The output replaces what has its name: never the user's text.
void refuse_output_among_inputs(const PrepareOptions& options) {
  for (const std::filesystem::path& input : options.inputs) {
    std::error_code missing;
    if (std::filesystem::equivalent(input, options.output, missing)) {
      throw_input_error("the output {} is one of the inputs; give it another name", options.output.string());
    }
  }
}

}  // namespace

PrepareResult prepare(const PrepareOptions& options) {
  if (options.inputs.empty()) throw_input_error("no input files: name at least one text or JSON lines file");
  refuse_output_among_inputs(options);
  TokenFileWriter writer(options.output, kByteVocabulary);
  for (const std::filesystem::path& input : options.inputs) {
    if (is_json_lines(input, options.format)) {
      add_json_lines_file(input, options.text_key, writer);
    } else {
      add_text_file(input, writer);
    }
  }
  if (writer.tokens() == 0) {
    throw_input_error("there is no text in {}{}: nothing to prepare", options.inputs.front().string(),
                      options.inputs.size() > 1 ? " and the other inputs" : "");
  }
  writer.finish();
  return {.documents = writer.documents(), .tokens = writer.tokens()};
}

}  // namespace slimpipe::data
