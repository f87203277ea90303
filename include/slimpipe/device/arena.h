#pragma once
// A device's memory: one address range, every allocation named and in a scope, peaks counted per
// scope, an optional limit. In plan-only mode the same sequence of calls gives the same offsets and
// peaks without any memory behind them.
//
// Not thread-safe: an arena belongs to the thread that drives its device.

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "slimpipe/core/check.h"
#include "slimpipe/core/tensor.h"

namespace slimpipe::device {

/// What memory is for. Reports keep these apart; the formulas of arXiv 2504.14519 speak of kSavedActivations
/// alone.
enum class Scope : std::uint8_t {
  kWeights,           ///< parameters in the compute type (in fp32 the master weights themselves)
  kMasterWeights,     ///< what bf16 weights lack of the fp32 master weights
  kGradients,         ///< fp32
  kOptimizer,         ///< Adam moments, fp32
  kSavedActivations,  ///< kept from a slice's forward to its backward, K and V included
  kDeferred,     ///< kept from a slice's backward for inputs to its weight gradients, where they are apart
  kKvGradients,  ///< fp32 dK, dV blocks
  kExchange,     ///< staging of the attention context exchange
  kTransfer,     ///< pipeline messages in flight
  kWorkspace,    ///< scratch of single operators and layer steps
  kInput,        ///< tokens, targets, tables of positions, loss slots
};
inline constexpr std::size_t kNumScopes = 11;
[[nodiscard]] std::string_view name_of(Scope scope);

struct ArenaOptions {
  std::string owner;       ///< "device 2", for error texts
  std::int64_t limit = 0;  ///< bytes of live allocations; 0: what the reserved range holds
  bool plan_only = false;  ///< no memory; addresses must not be dereferenced
};

struct ArenaStats {
  std::array<std::int64_t, kNumScopes> live{};
  std::array<std::int64_t, kNumScopes> peak{};  ///< each scope's own peak (their sum may exceed total_peak)
  std::int64_t total_live = 0;
  std::int64_t total_peak = 0;
  std::int64_t extent = 0;  ///< highest offset ever used: what fragmentation costs is extent - total_peak
};

class OutOfMemory : public Error {
 public:
  /// `scope`: what the memory was for.
  OutOfMemory(Scope scope, const std::string& what) : Error(what), scope_(scope) {}
  [[nodiscard]] Scope scope() const { return scope_; }

 private:
  Scope scope_;
};

class Arena {
 public:
  static constexpr std::int64_t kAlignment = 64;

  explicit Arena(ArenaOptions options);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  /// `bytes` rounded up to kAlignment, uninitialised. `name` must outlive the allocation (a literal).
  /// Zero bytes gives a valid unique address. Throws OutOfMemory with name, bytes, scope, the types and
  /// shapes of the `tensors` that the memory is for (their data is not looked at) and the table of what is
  /// live.
  [[nodiscard]] void* allocate(Scope scope, std::int64_t bytes, const char* name,
                               std::span<const Tensor> tensors = {});
  /// Frees what allocate returned; anything else throws Error. nullptr is allowed.
  void free(void* address);
  /// Moves a live allocation to another scope (a received message that becomes a saved activation).
  void rescope(void* address, Scope scope);

  [[nodiscard]] const ArenaStats& stats() const { return stats_; }
  /// Peaks become what is live now.
  void reset_peaks();
  /// "name (scope, bytes)" of everything live in `scope`: for the assertion that a step leaves nothing.
  [[nodiscard]] std::vector<std::string> live(Scope scope) const;
  /// A table of live and peak bytes by scope, several lines.
  [[nodiscard]] std::string table() const;
  [[nodiscard]] bool plan_only() const { return options_.plan_only; }

 private:
  struct Block {
    std::int64_t bytes;
    Scope scope;
    const char* name;
  };
  [[noreturn]] void fail(Scope scope, std::int64_t bytes, const char* name,
                         std::span<const Tensor> tensors) const;

  ArenaOptions options_;
  std::int64_t reserved_ = 0;
  std::byte* base_ = nullptr;
  std::map<std::int64_t, Block> live_;          // offset -> block
  std::map<std::int64_t, std::int64_t> holes_;  // offset -> bytes, coalesced; the last one is open-ended
  ArenaStats stats_;
};

/// Owns one allocation and frees it. Movable; must be destroyed by the arena's thread, before the arena.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Arena& arena, Scope scope, std::int64_t bytes, const char* name,
         std::span<const Tensor> tensors = {})
      : arena_(&arena), data_(arena.allocate(scope, bytes, name, tensors)), bytes_(bytes) {}
  /// For one contiguous tensor of `shape`'s type and dimensions; its data is not looked at.
  Buffer(Arena& arena, Scope scope, const Tensor& shape, const char* name)
      : Buffer(arena, scope, shape.bytes(), name, {&shape, 1}) {}
  ~Buffer() { reset(); }
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    Buffer taken(std::move(other));
    swap(taken);
    return *this;
  }
  void reset() noexcept;
  [[nodiscard]] void* data() const { return data_; }
  [[nodiscard]] std::int64_t bytes() const { return bytes_; }
  [[nodiscard]] explicit operator bool() const { return data_ != nullptr; }
  void rescope(Scope scope) { arena_->rescope(data_, scope); }

 private:
  void swap(Buffer& other) noexcept {
    std::swap(arena_, other.arena_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
  }
  Arena* arena_ = nullptr;
  void* data_ = nullptr;
  std::int64_t bytes_ = 0;
};

}  // namespace slimpipe::device
