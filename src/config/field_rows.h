#pragma once
// How the rows of the field table are written, and where they are.
//
// A row is made from SLIMPIPE_FIELD(training.steps): the key's text and the member's access from the same
// words, so that they cannot disagree. Everything else (type, range, meaning) is an argument.

#include <type_traits>
#include <utility>

#include "config/field.h"

#define SLIMPIPE_FIELD(path)         \
#path, [](auto& config) -> auto& { \
    return config.path;              \
  }

namespace slimpipe::config {

/// model, model.rope
[[nodiscard]] std::vector<Field> model_rows();
/// data
[[nodiscard]] std::vector<Field> data_rows();
/// parallel, schedule, memory
[[nodiscard]] std::vector<Field> layout_rows();
/// training
[[nodiscard]] std::vector<Field> training_rows();
/// device, checkpoint, log
[[nodiscard]] std::vector<Field> operation_rows();

/// A row whose member converts to and from `Held`, the alternative of Value that its domain uses.
template <typename Held, typename Access>
Field row(std::string_view key, Access access, Domain domain, std::string_view meaning) {
  using Member = std::remove_cvref_t<decltype(access(std::declval<RunConfig&>()))>;
  Field field;
  field.key = key;
  field.domain = std::move(domain);
  field.meaning = meaning;
  field.get = [access](const RunConfig& config) { return Value(static_cast<Held>(access(config))); };
  field.set = [access](RunConfig& config, const Value& value) {
    access(config) = static_cast<Member>(std::get<Held>(value));
  };
  return field;
}

template <typename Access>
Field flag(std::string_view key, Access access, std::string_view meaning) {
  return row<bool>(key, access, Flags{}, meaning);
}

/// An int or std::int64_t member; the range must lie within the member's type.
template <typename Access>
Field integer(std::string_view key, Access access, Integers range, std::string_view meaning) {
  return row<std::int64_t>(key, access, range, meaning);
}

template <typename Access>
Field unsigned_integer(std::string_view key, Access access, std::string_view meaning) {
  return row<std::uint64_t>(key, access, Unsigned{}, meaning);
}

template <typename Access>
Field number(std::string_view key, Access access, Numbers range, std::string_view meaning) {
  return row<double>(key, access, range, meaning);
}

template <typename Access>
Field bytes(std::string_view key, Access access, std::string_view meaning) {
  return row<std::int64_t>(key, access, Bytes{}, meaning);
}

template <typename Access>
Field text(std::string_view key, Access access, std::string_view meaning) {
  return row<std::string>(key, access, Text{}, meaning);
}

template <typename Access>
Field choice(std::string_view key, Access access, std::vector<std::string> names, std::string_view meaning) {
  return row<std::string>(key, access, Choices{std::move(names)}, meaning);
}

/// An enumeration whose enumerators count from 0 in the order of `names`.
template <typename Access>
Field enumeration(std::string_view key, Access access, const std::vector<std::string>& names,
                  std::string_view meaning) {
  using Enum = std::remove_cvref_t<decltype(access(std::declval<RunConfig&>()))>;
  Field field;
  field.key = key;
  field.domain = Choices{names};
  field.meaning = meaning;
  field.get = [access, names](const RunConfig& config) {
    return Value(names.at(static_cast<std::size_t>(access(config))));
  };
  field.set = [access, names](RunConfig& config, const Value& value) {
    std::size_t index = 0;
    while (names.at(index) != std::get<std::string>(value)) ++index;
    access(config) = static_cast<Enum>(index);
  };
  return field;
}

}  // namespace slimpipe::config
