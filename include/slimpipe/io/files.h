#pragma once
// Durable files: what is there under its final name is whole.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace slimpipe::io {

/// The whole file as text; InputError where it cannot be read or is larger than `limit` bytes.
[[nodiscard]] std::string read_text(const std::filesystem::path& path,
                                    std::int64_t limit = std::int64_t{64} << 20);
/// The text under its final name, synced, or what was there before (io/staged_file.h). Throws Error with path
/// and reason where it cannot be written, or where `path` is there and no regular file.
void write_text_atomically(const std::filesystem::path& path, std::string_view text);
/// Whether `path` (not a link at its end) still stands for the regular file that is open as `descriptor`.
[[nodiscard]] bool is_at(const std::filesystem::path& path, int descriptor);
/// The system's words for an error number, and what to do where a limit or a full disk is the reason.
[[nodiscard]] std::string system_reason(int error);
/// fsync of a folder, so that a rename inside it is durable. Throws Error with path and reason; a file system
/// that does not sync folders is none.
void sync_directory(const std::filesystem::path& path);
/// xxh3-64 of bytes.
[[nodiscard]] std::uint64_t hash_bytes(std::span<const std::byte> bytes);
/// xxh3-64 of a regular file's content; InputError where it cannot be opened, Error where reading fails.
[[nodiscard]] std::uint64_t hash_file(const std::filesystem::path& path);
/// 16 hex digits.
[[nodiscard]] std::string hash_text(std::uint64_t hash);

}  // namespace slimpipe::io
