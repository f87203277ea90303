#include "slimpipe/core/log.h"

#include <cstdio>
#include <functional>
#include <memory>
#include <mutex>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include "slimpipe/core/check.h"
#include "slimpipe/core/terminal.h"

namespace slimpipe::log {
namespace {

spdlog::level::level_enum spdlog_level(Level level) {
  switch (level) {
    case Level::kInfo:
      return spdlog::level::info;
    case Level::kWarning:
      return spdlog::level::warn;
    case Level::kError:
      return spdlog::level::err;
  }
  return spdlog::level::info;
}

/// The process's one log. Sinks change only under `mutex`, since spdlog does not guard its sink list.
struct Log {
  std::mutex mutex;
  std::shared_ptr<spdlog::sinks::stderr_color_sink_mt> terminal =
      std::make_shared<spdlog::sinks::stderr_color_sink_mt>();
  spdlog::logger logger{"slimpipe", terminal};
  std::string prefix;
  std::function<void()> before_terminal_line;

  Log() {
    terminal->set_color_mode(wants_colour(STDERR_FILENO) ? spdlog::color_mode::always
                                                         : spdlog::color_mode::never);
    apply(Options{});
    // A full disk takes the log away, not the run; told once, in words of our own.
    logger.set_error_handler([told = false](const std::string& why) mutable {
      if (!told)
        std::fprintf(stderr, "slimpipe: cannot write the log, and goes on without: %s\n", why.c_str());
      told = true;
    });
  }

  void write(spdlog::level::level_enum level, std::string_view text) {
    if (before_terminal_line && logger.should_log(level) && terminal->should_log(level))
      before_terminal_line();
    logger.log(level, "{}{}", prefix, text);
  }

  void apply(const Options& options) {
    prefix = options.rank >= 0 ? fmt::format("[rank {}] ", options.rank) : "";
    logger.set_level(spdlog_level(options.level));
    terminal->set_level(options.rank > 0 ? spdlog::level::warn : spdlog_level(options.level));
    logger.flush_on(spdlog::level::info);  // what was logged is in the file, however the process ends
    logger.set_pattern("%Y-%m-%d %H:%M:%S.%e %^%l%$ %v");
  }
};

Log& instance() {
  static Log log;
  return log;
}

}  // namespace

void configure(const Options& options) {
  Log& log = instance();
  const std::scoped_lock lock(log.mutex);
  log.apply(options);
}

void add_file(const std::filesystem::path& file) {
  Log& log = instance();
  const std::scoped_lock lock(log.mutex);
  std::error_code missing;
  if (std::filesystem::exists(file, missing) && !std::filesystem::is_regular_file(file, missing)) {
    throw_error("cannot write the log file {}: it is there and no regular file; remove it", file.string());
  }
  try {
    auto sink = std::make_shared<spdlog::sinks::basic_file_sink_mt>(file.string());
    sink->set_pattern("%Y-%m-%d %H:%M:%S.%e %l %v");
    log.logger.sinks().push_back(std::move(sink));
  } catch (const spdlog::spdlog_ex& failure) {
    throw_error("cannot write the log file {}: {}", file.string(), failure.what());
  }
}

void write(Level level, std::string_view text) {
  Log& log = instance();
  const std::scoped_lock lock(log.mutex);
  log.write(spdlog_level(level), text);
}

void write_to_files(Level level, std::string_view text) {
  Log& log = instance();
  const std::scoped_lock lock(log.mutex);
  const auto shown = log.terminal->level();
  log.terminal->set_level(spdlog::level::off);
  log.write(spdlog_level(level), text);
  log.terminal->set_level(shown);
}

void before_terminal_line(std::function<void()> action) {
  Log& log = instance();
  const std::scoped_lock lock(log.mutex);
  log.before_terminal_line = std::move(action);
}

void flush() {
  Log& log = instance();
  const std::scoped_lock lock(log.mutex);
  log.logger.flush();
}

}  // namespace slimpipe::log
