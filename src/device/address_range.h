#pragma once
// A range of virtual addresses of which pages come into being when they are first written.

#include <cstddef>
#include <cstdint>

namespace slimpipe::device {

/// What a range is asked to hold: several times the machine's memory, because addresses cost nothing
/// and an arena's extent may exceed its live bytes.
[[nodiscard]] std::int64_t preferred_range_bytes();

struct AddressRange {
  std::byte* base = nullptr;
  std::int64_t bytes = 0;
};
/// Reserves `bytes`, or as much less as the system's limits allow (never under 64 MiB: then it throws).
[[nodiscard]] AddressRange reserve_range(std::int64_t bytes);
void release_range(const AddressRange& range) noexcept;

/// Tells the address sanitizer, where built with it, what must not and what may be touched.
void forbid_access(std::byte* begin, std::int64_t bytes) noexcept;
void permit_access(std::byte* begin, std::int64_t bytes) noexcept;

}  // namespace slimpipe::device
