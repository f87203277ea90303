#pragma once
// What the command line says about itself: value names in --help, checks, and the text of a wrong use.

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace slimpipe::app {

// Checks name what they expect in the error alone, so that --help stays readable.
/// An integer in [low, high].
[[nodiscard]] CLI::Validator integer_in(int low, int high);
/// A finite number that is positive, or also zero.
[[nodiscard]] CLI::Validator positive_number();
[[nodiscard]] CLI::Validator non_negative_number();

/// One of these words.
[[nodiscard]] CLI::Validator one_of(std::vector<std::string> words);

/// What was wrong with a command line that `app` failed to parse, and which --help to read.
[[nodiscard]] std::string describe_usage_error(const CLI::App& app, const CLI::ParseError& error);

}  // namespace slimpipe::app
