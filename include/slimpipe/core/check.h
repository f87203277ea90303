#pragma once
// Errors and checks. Every error says what was expected, what was found, where, and what to do.

#include <cstdint>
#include <exception>
#include <fmt/core.h>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace slimpipe {

/// What the program ends with.
enum ExitStatus : std::uint8_t {
  kExitSuccess = 0,
  kExitFailure = 1,   ///< a run that failed
  kExitBadInput = 2,  ///< what the user can mend: configuration, command line, a data or checkpoint file
};

/// A failure of the run itself: kExitFailure.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Input that the user can mend: configuration, command line, a file's contents. kExitBadInput.
class InputError : public Error {
 public:
  using Error::Error;
};

/// The host's memory did not do for what the program itself keeps (a device has its own kind of failure).
/// Says so in place of std::bad_alloc where more is known than that.
class OutOfHostMemory : public Error {
 public:
  using Error::Error;
};

/// Thrown by a wait that was given up because another device or process failed first.
/// Never the cause of a failure, so it is never reported as one.
class Stopped : public Error {
 public:
  using Error::Error;
};

[[nodiscard]] inline bool is_out_of_host_memory(const std::exception& failure) {
  return dynamic_cast<const OutOfHostMemory*>(&failure) != nullptr ||
         dynamic_cast<const std::bad_alloc*>(&failure) != nullptr;
}

/// What a failure says: what(), but for std::bad_alloc, whose what() is its name.
[[nodiscard]] std::string cause_of(const std::exception& failure);

/// What the program ends with where this ends it.
[[nodiscard]] inline ExitStatus exit_status_of(const std::exception& failure) {
  return dynamic_cast<const InputError*>(&failure) != nullptr ? kExitBadInput : kExitFailure;
}

namespace detail {
[[noreturn]] void check_failed(const char* file, int line, const char* expression,
                               const std::string& message);
}

template <typename... Args>
[[noreturn]] void throw_error(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(fmt::format(format, std::forward<Args>(args)...));
}

template <typename... Args>
[[noreturn]] void throw_input_error(fmt::format_string<Args...> format, Args&&... args) {
  throw InputError(fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace slimpipe

/// An invariant of the program: SLIMPIPE_CHECK(rows > 0, "rows is {}", rows). Always on; a failure
/// throws slimpipe::Error with the expression, its place and the message. Not for user input.
#define SLIMPIPE_CHECK(expression, ...)                                                              \
  do {                                                                                               \
    if (!(expression)) [[unlikely]]                                                                  \
      ::slimpipe::detail::check_failed(__FILE__, __LINE__, #expression, ::fmt::format(__VA_ARGS__)); \
  } while (false)
