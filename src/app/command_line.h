#pragma once
// What the command line says about itself: value names in --help, checks, and the text of a wrong use.

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace slimpipe::app {

// Checks name what they expect in the error alone, so that --help stays readable.
/// An integer in [low, high].
[[nodiscard]] CLI::Validator integer_in(int low, int high);
/// A number in [low, high].
[[nodiscard]] CLI::Validator number_in(double low, double high);
/// A name or path: anything but the empty text and control characters, which would be printed with it.
[[nodiscard]] CLI::Validator one_line();
/// One of these words.
[[nodiscard]] CLI::Validator one_of(std::vector<std::string> words);

/// What was wrong with a command line that `app` failed to parse, and which --help to read.
[[nodiscard]] std::string describe_usage_error(const CLI::App& app, const CLI::ParseError& error);

}  // namespace slimpipe::app
