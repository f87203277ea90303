#include "device/address_range.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
#define SLIMPIPE_ADDRESS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SLIMPIPE_ADDRESS_SANITIZER 1
#endif
#endif
#ifdef SLIMPIPE_ADDRESS_SANITIZER
#include <sanitizer/asan_interface.h>
#endif

#include "slimpipe/core/check.h"

namespace slimpipe::device {

namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;
constexpr std::int64_t kGiB = 1024 * kMiB;
constexpr std::int64_t kLeastBytes = 64 * kMiB;
#if defined(__SANITIZE_THREAD__)
// The thread sanitizer leaves about 1.5 TiB of addresses to a program and ends it beyond them.
constexpr std::int64_t kMostBytes = 32 * kGiB;
#else
constexpr std::int64_t kMostBytes = 1024 * kGiB;
#endif

}  // namespace

std::int64_t preferred_range_bytes() {
  const auto physical = std::int64_t{sysconf(_SC_PHYS_PAGES)} * std::int64_t{sysconf(_SC_PAGESIZE)};
  return std::clamp(4 * physical, kGiB, kMostBytes);
}

AddressRange reserve_range(std::int64_t bytes) {
  for (std::int64_t size = bytes; size >= std::min(bytes, kLeastBytes); size /= 2) {
    void* base = mmap(nullptr, static_cast<std::size_t>(size), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) continue;
    // Fewer TLB misses in large matrices; a system that refuses still works.
    static_cast<void>(madvise(base, static_cast<std::size_t>(size), MADV_HUGEPAGE));
    return {static_cast<std::byte*>(base), size};
  }
  throw_error(
      "cannot reserve even {} MiB of addresses for device memory: {}. Look at the limit on virtual memory "
      "(ulimit -v) and at vm.overcommit_memory",
      std::min(bytes, kLeastBytes) / kMiB, std::strerror(errno));
}

void release_range(const AddressRange& range) noexcept {
  if (range.base != nullptr) munmap(range.base, static_cast<std::size_t>(range.bytes));
}

#ifdef SLIMPIPE_ADDRESS_SANITIZER
void forbid_access(std::byte* begin, std::int64_t bytes) noexcept {
  __asan_poison_memory_region(begin, static_cast<std::size_t>(bytes));
}
void permit_access(std::byte* begin, std::int64_t bytes) noexcept {
  __asan_unpoison_memory_region(begin, static_cast<std::size_t>(bytes));
}
#else
void forbid_access(std::byte* /*begin*/, std::int64_t /*bytes*/) noexcept {}
void permit_access(std::byte* /*begin*/, std::int64_t /*bytes*/) noexcept {}
#endif

}  // namespace slimpipe::device
