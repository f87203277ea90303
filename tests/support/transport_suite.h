#pragma once
// What every transport must do, as functions over a harness; each throws an Error where it is not met.

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "slimpipe/comm/collectives.h"
#include "slimpipe/comm/transport.h"
#include "slimpipe/core/check.h"

#include "support/device_harness.h"
#include "support/message_program.h"

namespace slimpipe::test {

inline void random_programs_arrive_intact(DeviceHarness& harness) {
  std::uint64_t seed = 20250414;
  for (const std::int64_t window : {1, 5, 1000}) {
    const MessageProgram program = draw_program(++seed, harness.devices(), window);
    harness.run_well([&](const DeviceContext& context) { ProgramPlayer(program, context).play(); });
  }
}

/// A burst of messages on one channel, of which one end posts all before the other posts any.
inline void either_end_may_post_first(DeviceHarness& harness) {
  constexpr int kMessages = 20;
  constexpr std::int64_t kBytes = 20'011;
  const int last = harness.devices() - 1;
  const comm::Channel data{.source = 0, .destination = last, .purpose = comm::Purpose::kActivation};
  for (const bool sender_first : {true, false}) {
    harness.run_well([&](const DeviceContext& context) {
      const bool sends = context.device == 0;
      if (!sends && context.device != last) return;
      std::vector<GuardedBuffer> buffers(kMessages, GuardedBuffer(kBytes));
      std::vector<comm::Ticket> tickets;
      const bool first = sends == sender_first;
      const comm::Channel signal{.source = sender_first ? 0 : last, .destination = sender_first ? last : 0};
      if (!first) context.endpoint.wait(context.endpoint.post_receive(signal, nullptr, 0));
      for (int i = 0; i < kMessages; ++i) {
        GuardedBuffer& buffer = buffers[static_cast<std::size_t>(i)];
        if (sends) buffer.fill(static_cast<std::uint64_t>(i));
        tickets.push_back(sends ? context.endpoint.post_send(data, buffer.data(), kBytes)
                                : context.endpoint.post_receive(data, buffer.data(), kBytes));
      }
      if (first) context.endpoint.wait(context.endpoint.post_send(signal, nullptr, 0));
      for (std::size_t i = kMessages; i-- > 0;) {
        context.endpoint.wait(tickets[i]);
        SLIMPIPE_CHECK(buffers[i].holds(i), "device {} has wrong bytes in message {}", context.device, i);
      }
    });
  }
}

/// Message 1 of a channel has two sizes. The receiver always sees it; the sender where it is local.
inline void different_sizes_are_an_error(DeviceHarness& harness, std::int64_t sent, std::int64_t expected) {
  const int last = harness.devices() - 1;
  const comm::Channel channel{.source = 0, .destination = last, .purpose = comm::Purpose::kTiedGradient};
  const auto outcomes = harness.run([&](const DeviceContext& context) {
    constexpr std::int64_t kAgreedBytes = 8;
    std::vector<std::byte> buffer(static_cast<std::size_t>(std::max({sent, expected, kAgreedBytes})));
    for (const bool agreed : {true, false}) {
      if (context.device == 0) {
        context.endpoint.wait(
            context.endpoint.post_send(channel, buffer.data(), agreed ? kAgreedBytes : sent));
      } else if (context.device == last) {
        context.endpoint.wait(
            context.endpoint.post_receive(channel, buffer.data(), agreed ? kAgreedBytes : expected));
      }
    }
  });
  for (const DeviceOutcome& outcome : outcomes) {
    const bool sees = outcome.device == last || (outcome.device == 0 && harness.is_local(last));
    if (!sees) continue;
    const std::string text = outcome.error();
    for (const std::string& part :
         {fmt::format("message 1 of the tied_gradient channel from device 0 to device {}", last),
          fmt::format("sender posted {} bytes", sent), fmt::format("receiver {}", expected)}) {
      SLIMPIPE_CHECK(text.find(part) != std::string::npos, "device {}: expected '{}' in the error '{}'",
                     outcome.device, part, text);
    }
  }
}

/// Every device waits for a message that never comes while another of its messages is outstanding; then
/// the run is stopped. A wait that is not woken shows as the time-out of the test.
inline void stop_wakes_every_wait(DeviceHarness& harness) {
  const int devices = harness.devices();
  const auto outcomes = harness.run([&](const DeviceContext& context) {
    std::thread failing;
    if (context.device == harness.local_devices().front()) {
      failing = std::thread([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        context.first_error.set(std::make_exception_ptr(Error("stopped by the test")), {});
      });
    }
    const int neighbour = (context.device + 1) % devices;
    const comm::Channel from{.source = neighbour, .destination = context.device};
    std::vector<double> buffer(1000);
    const auto bytes = static_cast<std::int64_t>(buffer.size() * sizeof(double));
    const comm::Ticket ticket = context.endpoint.post_receive(from, buffer.data(), bytes);
    (void)context.endpoint.post_receive(from, buffer.data(), bytes);
    std::exception_ptr failure;
    try {
      context.endpoint.wait(ticket);
    } catch (...) {
      failure = std::current_exception();
    }
    if (failing.joinable()) failing.join();
    if (failure) std::rethrow_exception(failure);
  });
  for (const DeviceOutcome& outcome : outcomes) {
    SLIMPIPE_CHECK(outcome.stopped(), "device {}: expected Stopped, found '{}'", outcome.device,
                   outcome.error());
  }
}

/// Value `i` of a member: magnitudes from 2^-40 to 2^40, so that the order of a sum shows in its bits.
inline double collective_value(int device, std::size_t i) {
  const RandomStream stream{RandomStream::Use::kTest, static_cast<std::uint32_t>(device)};
  if (i == 3 && device == 1) return std::numeric_limits<double>::quiet_NaN();
  if (i == 5 && device == 0) return -std::numeric_limits<double>::infinity();
  return std::ldexp(random_normal(7, stream, i), static_cast<int>(random_u64(8, stream, i) % 81) - 40);
}

inline void check_bits(const std::vector<double>& found, const std::vector<double>& expected, int device) {
  for (std::size_t i = 0; i < expected.size(); ++i) {
    SLIMPIPE_CHECK(std::bit_cast<std::uint64_t>(found[i]) == std::bit_cast<std::uint64_t>(expected[i]),
                   "sum on device {}: value {} is {}, expected {}", device, i, found[i], expected[i]);
  }
}

/// The sum over one group against the same sum done in one place, in group order.
inline void check_sum(const DeviceContext& context, const std::vector<int>& group, std::size_t count) {
  comm::Collectives collectives(context.endpoint, context.device, group);
  const auto values_of = [&](int device) {
    std::vector<double> values(count);
    for (std::size_t i = 0; i < count; ++i) values[i] = collective_value(device, i);
    return values;
  };
  std::vector<double> sum = values_of(group[0]);
  for (std::size_t member = 1; member < group.size(); ++member) {
    const std::vector<double> values = values_of(group[member]);
    for (std::size_t i = 0; i < count; ++i) sum[i] += values[i];
  }
  std::vector<double> values = values_of(context.device);
  collectives.all_reduce_sum(values);
  check_bits(values, sum, context.device);
  collectives.barrier();
}

inline void sums_equal_the_sequential_reference(DeviceHarness& harness) {
  std::vector<int> all(static_cast<std::size_t>(harness.devices()));
  std::iota(all.begin(), all.end(), 0);
  const std::vector<int> backwards(all.rbegin(), all.rend());
  harness.run_well([&](const DeviceContext& context) {
    std::vector<int> same_parity;  // two groups at once
    for (const int device : all) {
      if (device % 2 == context.device % 2) same_parity.push_back(device);
    }
    for (const std::size_t count : {0, 1, 17}) {
      check_sum(context, all, count);
      check_sum(context, same_parity, count);
      check_sum(context, backwards, count);
      check_sum(context, {context.device}, count);
    }
  });
}

inline void run_transport_suite(DeviceHarness& harness) {
  random_programs_arrive_intact(harness);
  either_end_may_post_first(harness);
  sums_equal_the_sequential_reference(harness);
  different_sizes_are_an_error(harness, 16, 24);
  different_sizes_are_an_error(harness, 24, 16);
  different_sizes_are_an_error(harness, 0, 1);
  different_sizes_are_an_error(harness, 100'000, 200'000);
  different_sizes_are_an_error(harness, 200'000, 100'000);
  stop_wakes_every_wait(harness);
}

}  // namespace slimpipe::test
