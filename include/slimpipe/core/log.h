#pragma once
// The log: lines to standard error and, once a run folder exists, to a file of this rank. spdlog stays
// behind log.cpp. Thread-safe.

#include <filesystem>
#include <fmt/core.h>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

namespace slimpipe::log {

enum class Level { kInfo, kWarning, kError };

struct Options {
  Level level = Level::kInfo;
  /// MPI rank of this process, or -1 where it runs alone; to the terminal, rank > 0 writes no more than
  /// warnings and errors. The file of each holds what `level` lets through.
  int rank = -1;
};

/// May be called again; until then the default options hold.
void configure(const Options& options);
/// Also appends every line to `file` from now on. Throws Error where it cannot be opened.
void add_file(const std::filesystem::path& file);
void write(Level level, std::string_view text);
/// The same for the files alone: what the terminal is told in another way.
void write_to_files(Level level, std::string_view text);
/// Called before every line that goes to the terminal, by the thread that logs, so that whoever shares the
/// terminal can leave the line it is on; it must not log. An empty action ends it: it is not running then.
void before_terminal_line(std::function<void()> action);
/// Flushes terminal and file; called before the process is aborted.
void flush();

template <typename... Args>
void info(fmt::format_string<Args...> format, Args&&... args) {
  write(Level::kInfo, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void warning(fmt::format_string<Args...> format, Args&&... args) {
  write(Level::kWarning, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void error(fmt::format_string<Args...> format, Args&&... args) {
  write(Level::kError, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace slimpipe::log
