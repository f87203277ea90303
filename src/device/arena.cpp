#include "slimpipe/device/arena.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "device/address_range.h"

namespace slimpipe::device {

namespace {

// Plans are made of models far larger than this machine, so a planned range is as good as endless. Its
// base is no address that a process can have, so a plan's pointer that is followed ends the process.
constexpr std::int64_t kPlannedRange = std::int64_t{1} << 52;
constexpr std::uintptr_t kPlannedBase = std::uintptr_t{1} << 56;

// How far behind the last allocation memory is forbidden under the address sanitizer. Not all of the
// range: its shadow would be an eighth of it.
constexpr std::int64_t kGuardBytes = std::int64_t{1} << 16;

constexpr std::int64_t rounded_up(std::int64_t bytes) {
  const std::int64_t units = (bytes + Arena::kAlignment - 1) / Arena::kAlignment;
  return std::max<std::int64_t>(units, 1) * Arena::kAlignment;
}

/// ": fp32[8, 64], bf16[8]"; nothing where there are none.
std::string shapes_of(std::span<const Tensor> tensors) {
  std::string text;
  for (const Tensor& tensor : tensors) text += (text.empty() ? ": " : ", ") + tensor.describe();
  return text;
}

constexpr std::size_t index_of(Scope scope) {
  return static_cast<std::size_t>(scope);
}

}  // namespace

std::string_view name_of(Scope scope) {
  switch (scope) {
    case Scope::kWeights:
      return "weights";
    case Scope::kMasterWeights:
      return "master_weights";
    case Scope::kGradients:
      return "gradients";
    case Scope::kOptimizer:
      return "optimizer";
    case Scope::kSavedActivations:
      return "saved_activations";
    case Scope::kDeferred:
      return "deferred";
    case Scope::kKvGradients:
      return "kv_gradients";
    case Scope::kExchange:
      return "exchange";
    case Scope::kTransfer:
      return "transfer";
    case Scope::kWorkspace:
      return "workspace";
    case Scope::kInput:
      return "input";
  }
  return "?";
}

Arena::Arena(ArenaOptions options) : options_(std::move(options)) {
  SLIMPIPE_CHECK(options_.limit >= 0, "memory limit of {} is {}", options_.owner, options_.limit);
  if (options_.plan_only) {
    // NOLINTNEXTLINE(performance-no-int-to-ptr): a made-up address is the purpose
    base_ = reinterpret_cast<std::byte*>(kPlannedBase);
    reserved_ = kPlannedRange;
  } else {
    const AddressRange range = reserve_range(preferred_range_bytes());
    base_ = range.base;
    reserved_ = range.bytes;
  }
  holes_.emplace(0, reserved_);
}

Arena::~Arena() {
  if (options_.plan_only) return;
  permit_access(base_, std::min(reserved_, stats_.extent + kGuardBytes));
  release_range({base_, reserved_});
}

void* Arena::allocate(Scope scope, std::int64_t bytes, const char* name, std::span<const Tensor> tensors) {
  SLIMPIPE_CHECK(bytes >= 0, "{}: allocation of {} bytes for {}", options_.owner, bytes, name);
  if (bytes > reserved_) fail(scope, bytes, name, tensors);
  const std::int64_t size = rounded_up(bytes);
  if (options_.limit > 0 && size > options_.limit - stats_.total_live) fail(scope, bytes, name, tensors);
  const auto hole =
      std::find_if(holes_.begin(), holes_.end(), [size](const auto& entry) { return entry.second >= size; });
  if (hole == holes_.end()) fail(scope, bytes, name, tensors);

  const auto [offset, hole_bytes] = *hole;
  holes_.erase(hole);
  if (hole_bytes > size) holes_.emplace(offset + size, hole_bytes - size);
  live_.emplace(offset, Block{size, scope, name});

  std::int64_t& live = stats_.live[index_of(scope)];
  live += size;
  stats_.total_live += size;
  stats_.peak[index_of(scope)] = std::max(stats_.peak[index_of(scope)], live);
  stats_.total_peak = std::max(stats_.total_peak, stats_.total_live);

  std::byte* address = base_ + offset;
  if (!options_.plan_only) {
    if (offset + size > stats_.extent)
      forbid_access(address, std::min(size + kGuardBytes, reserved_ - offset));
    permit_access(address, bytes);
#ifndef NDEBUG
    std::memset(address, 0xFF, static_cast<std::size_t>(bytes));  // NaN in every floating type
#endif
  }
  stats_.extent = std::max(stats_.extent, offset + size);
  return address;
}

void Arena::free(void* address) {
  if (address == nullptr) return;
  // Compared as integers: the address may belong to anybody.
  const auto offset = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(address) -
                                                reinterpret_cast<std::uintptr_t>(base_));
  const auto block = live_.find(offset);
  SLIMPIPE_CHECK(block != live_.end(), "{}: free of {}, which is not the address of a live allocation",
                 options_.owner, address);
  std::int64_t begin = offset;
  std::int64_t bytes = block->second.bytes;
  stats_.live[index_of(block->second.scope)] -= bytes;
  stats_.total_live -= bytes;
  live_.erase(block);
  if (!options_.plan_only) forbid_access(base_ + begin, bytes);

  auto next = holes_.lower_bound(begin);
  if (next != holes_.end() && next->first == begin + bytes) {
    bytes += next->second;
    next = holes_.erase(next);
  }
  if (next != holes_.begin()) {
    const auto previous = std::prev(next);
    if (previous->first + previous->second == begin) {
      begin = previous->first;
      bytes += previous->second;
      holes_.erase(previous);
    }
  }
  holes_.emplace(begin, bytes);
}

void Arena::rescope(void* address, Scope scope) {
  const auto offset = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(address) -
                                                reinterpret_cast<std::uintptr_t>(base_));
  const auto found = live_.find(offset);
  SLIMPIPE_CHECK(found != live_.end(),
                 "{}: rescope to {} of {}, which is not the address of a live allocation", options_.owner,
                 name_of(scope), address);
  Block& block = found->second;
  stats_.live[index_of(block.scope)] -= block.bytes;
  std::int64_t& live = stats_.live[index_of(scope)];
  live += block.bytes;
  stats_.peak[index_of(scope)] = std::max(stats_.peak[index_of(scope)], live);
  block.scope = scope;
}

void Arena::reset_peaks() {
  stats_.peak = stats_.live;
  stats_.total_peak = stats_.total_live;
}

std::vector<std::string> Arena::live(Scope scope) const {
  std::vector<std::string> texts;
  for (const auto& [offset, block] : live_) {
    if (block.scope == scope)
      texts.push_back(fmt::format("{} ({}, {} bytes)", block.name, name_of(scope), block.bytes));
  }
  return texts;
}

std::string Arena::table() const {
  std::string text = fmt::format("  {:<18} {:>16} {:>16}\n", "scope", "live bytes", "peak bytes");
  for (std::size_t i = 0; i < kNumScopes; ++i) {
    if (stats_.peak[i] == 0) continue;
    text += fmt::format("  {:<18} {:>16} {:>16}\n", name_of(static_cast<Scope>(i)), stats_.live[i],
                        stats_.peak[i]);
  }
  text += fmt::format("  {:<18} {:>16} {:>16}\n", "total", stats_.total_live, stats_.total_peak);
  return text;
}

void Arena::fail(Scope scope, std::int64_t bytes, const char* name, std::span<const Tensor> tensors) const {
  const bool over_limit = options_.limit > 0 &&
                          (bytes > options_.limit || rounded_up(bytes) > options_.limit - stats_.total_live);
  const std::string why =
      over_limit ? fmt::format("{} bytes are live and the limit is {}", stats_.total_live, options_.limit)
                 : fmt::format("{} bytes are live and no hole of the reserved {} bytes is large enough",
                               stats_.total_live, reserved_);
  std::string scopes = table();
  scopes.pop_back();  // no error ends with a newline
  throw OutOfMemory(
      scope, fmt::format("{}: out of memory: {} needs {} bytes ({}{}), but {}\n{}", options_.owner, name,
                         bytes, name_of(scope), shapes_of(tensors), why, scopes));
}

void Buffer::reset() noexcept {
  if (data_ != nullptr) arena_->free(data_);
  arena_ = nullptr;
  data_ = nullptr;
  bytes_ = 0;
}

}  // namespace slimpipe::device
