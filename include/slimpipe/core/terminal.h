#pragma once
// What is known of the terminal that a standard stream may be. Nothing else asks the environment for it.

namespace slimpipe {

/// Whether `descriptor` is a terminal that takes escape sequences: TERM names one, and not "dumb".
[[nodiscard]] bool takes_escape_sequences(int descriptor);

/// Whether coloured text is wanted on `descriptor`: it takes escape sequences, and NO_COLOR (no-color.org) is
/// unset or empty.
[[nodiscard]] bool wants_colour(int descriptor);

/// Columns of the terminal; 0 where `descriptor` is none, or one that does not tell.
[[nodiscard]] int terminal_columns(int descriptor);

}  // namespace slimpipe
