#pragma once
// Random sequences of messages between devices, executed with random delays, orders of waiting and numbers
// in flight, and checked to the byte.

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <set>
#include <thread>
#include <vector>

#include "slimpipe/core/check.h"
#include "slimpipe/core/random.h"

#include "support/device_harness.h"

namespace slimpipe::test {

/// A sequence of random numbers; the same for the same seed and detail in every process.
class Draws {
 public:
  Draws(std::uint64_t seed, std::uint32_t detail) : seed_(seed), detail_(detail) {}
  /// Uniform in [0, bound), but for a bias that tests can live with.
  std::int64_t below(std::int64_t bound) {
    const RandomStream stream{RandomStream::Use::kTest, detail_};
    return static_cast<std::int64_t>(random_u64(seed_, stream, drawn_++) % static_cast<std::uint64_t>(bound));
  }
  bool one_in(std::int64_t n) { return below(n) == 0; }

 private:
  std::uint64_t seed_;
  std::uint32_t detail_;
  std::uint64_t drawn_ = 0;
};

/// A buffer with bytes behind its end that must stay as they are.
class GuardedBuffer {
 public:
  explicit GuardedBuffer(std::int64_t bytes)
      : bytes_(static_cast<std::size_t>(bytes)), data_(bytes_ + kGuardBytes, kUntouched) {}
  /// May be null where nothing is to be sent.
  [[nodiscard]] std::byte* data() { return bytes_ == 0 ? nullptr : data_.data(); }
  [[nodiscard]] std::int64_t bytes() const { return static_cast<std::int64_t>(bytes_); }

  void fill(std::uint64_t key) {
    for (std::size_t i = 0; i < bytes_; ++i) data_[i] = expected(key, i);
  }
  [[nodiscard]] bool holds(std::uint64_t key) const {
    for (std::size_t i = 0; i < bytes_; ++i) {
      if (data_[i] != expected(key, i)) return false;
    }
    return std::all_of(data_.begin() + static_cast<std::ptrdiff_t>(bytes_), data_.end(),
                       [](std::byte value) { return value == kUntouched; });
  }

 private:
  static constexpr std::size_t kGuardBytes = 16;
  static constexpr std::byte kUntouched{0xCD};
  /// Differs between messages and between places of one message.
  static std::byte expected(std::uint64_t key, std::size_t i) {
    return static_cast<std::byte>(((key + i) * 0x9E3779B97F4A7C15U) >> 56);
  }

  std::size_t bytes_;
  std::vector<std::byte> data_;
};

struct MessageProgram {
  struct Message {
    comm::Channel channel;
    std::int64_t bytes;
  };
  std::uint64_t seed;
  std::int64_t window;  ///< most messages that a device leaves in flight
  std::vector<Message> messages;
};

inline std::int64_t draw_size(Draws& draws) {
  constexpr std::array<std::int64_t, 3> kBounds = {64, 8192, 300'000};
  if (draws.one_in(8)) return 0;
  return draws.below(kBounds[static_cast<std::size_t>(draws.below(3))]);
}

inline MessageProgram draw_program(std::uint64_t seed, int devices, std::int64_t window) {
  Draws draws(seed, 0);
  MessageProgram program{seed, window, {}};
  for (int i = 0; i < 40 * devices; ++i) {
    comm::Channel channel;
    channel.source = static_cast<int>(draws.below(devices));
    channel.destination = static_cast<int>((channel.source + 1 + draws.below(devices - 1)) % devices);
    channel.purpose = static_cast<comm::Purpose>(draws.below(comm::kNumPurposes));
    program.messages.push_back({channel, draw_size(draws)});
  }
  return program;
}

/// One device's part in a program. Devices go through the messages in the same order and wait only for
/// messages they have passed, so the device that waits for the earliest message can always go on.
class ProgramPlayer {
 public:
  ProgramPlayer(const MessageProgram& program, const DeviceContext& context)
      : program_(program),
        device_(context.device),
        endpoint_(context.endpoint),
        draws_(program.seed, static_cast<std::uint32_t>(context.device) + 1) {}

  void play() {
    const std::size_t count = program_.messages.size();
    for (std::size_t i = 0; i < count; ++i) {
      dawdle();
      post_receives(i, std::min(count, i + 1 + static_cast<std::size_t>(draws_.below(6))));
      post_send(i);
      while (passed(i) > program_.window) wait_for_one_of(i);
      if (draws_.one_in(4)) endpoint_.progress();
    }
    while (!in_flight_.empty()) wait_for_one_of(count);
  }

 private:
  struct InFlight {
    std::size_t index;
    comm::Ticket ticket;
    GuardedBuffer buffer;
  };

  void dawdle() {
    if (draws_.one_in(6)) std::this_thread::sleep_for(std::chrono::microseconds(draws_.below(200)));
  }

  void post_receives(std::size_t begin, std::size_t end) {
    for (std::size_t i = std::max(begin, receives_posted_); i < end; ++i) {
      const auto& [channel, bytes] = program_.messages[i];
      if (channel.destination != device_) continue;
      GuardedBuffer buffer(bytes);
      const comm::Ticket ticket = endpoint_.post_receive(channel, buffer.data(), bytes);
      in_flight_.push_back({i, ticket, std::move(buffer)});
    }
    receives_posted_ = std::max(receives_posted_, end);
  }

  void post_send(std::size_t i) {
    const auto& [channel, bytes] = program_.messages[i];
    if (channel.source != device_) return;
    GuardedBuffer buffer(bytes);
    buffer.fill(key(i));
    const comm::Ticket ticket = endpoint_.post_send(channel, buffer.data(), bytes);
    in_flight_.push_back({i, ticket, std::move(buffer)});
  }

  [[nodiscard]] std::int64_t passed(std::size_t position) const {
    return std::count_if(in_flight_.begin(), in_flight_.end(),
                         [&](const InFlight& message) { return message.index <= position; });
  }

  void wait_for_one_of(std::size_t position) {
    auto nth = draws_.below(passed(position));
    const auto chosen = std::find_if(in_flight_.begin(), in_flight_.end(), [&](const InFlight& message) {
      return message.index <= position && nth-- == 0;
    });
    endpoint_.wait(chosen->ticket);
    SLIMPIPE_CHECK(chosen->buffer.holds(key(chosen->index)),
                   "program of seed {}: device {} has wrong bytes in message {} ({} bytes)", program_.seed,
                   device_, chosen->index, chosen->buffer.bytes());
    in_flight_.erase(chosen);
  }

  [[nodiscard]] std::uint64_t key(std::size_t index) const { return (program_.seed << 32) + 7919 * index; }

  const MessageProgram& program_;
  int device_;
  comm::Endpoint& endpoint_;
  Draws draws_;
  std::size_t receives_posted_ = 0;  ///< index up to which receives have been posted
  std::vector<InFlight> in_flight_;
};

}  // namespace slimpipe::test
