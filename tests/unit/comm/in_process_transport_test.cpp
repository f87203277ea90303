#include <array>
#include <atomic>

#include "slimpipe/comm/collectives.h"
#include "slimpipe/comm/transport.h"

#include "support/catch.h"
#include "support/in_process_harness.h"
#include "support/transport_suite.h"

namespace slimpipe::comm {
namespace {

using test::InProcessHarness;

constexpr Channel kZeroToOne{.source = 0, .destination = 1, .purpose = Purpose::kActivation};

}  // namespace

TEST_CASE("random message programs arrive intact between threads", "[unit]") {
  InProcessHarness harness(GENERATE(2, 3, 7));
  test::random_programs_arrive_intact(harness);
}

TEST_CASE("either end of a channel between threads may post first", "[unit]") {
  InProcessHarness harness(GENERATE(2, 3));
  test::either_end_may_post_first(harness);
}

TEST_CASE("sizes that disagree are an error at both ends", "[unit]") {
  InProcessHarness harness(GENERATE(2, 3));
  test::different_sizes_are_an_error(harness, 16, 24);
  test::different_sizes_are_an_error(harness, 24, 16);
  test::different_sizes_are_an_error(harness, 0, 1);
}

TEST_CASE("a stop wakes every wait between threads", "[unit]") {
  InProcessHarness harness(GENERATE(2, 5));
  test::stop_wakes_every_wait(harness);
}

TEST_CASE("sums over a group equal the sequential reference to the bit", "[unit]") {
  InProcessHarness harness(GENERATE(2, 3, 5));
  test::sums_equal_the_sequential_reference(harness);
}

TEST_CASE("nobody passes a barrier before everybody has come", "[unit]") {
  constexpr int kDevices = 4;
  InProcessHarness harness(kDevices);
  std::atomic<int> arrived{0};
  harness.run_well([&](const test::DeviceContext& context) {
    Collectives collectives(context.endpoint, context.device, {2, 0, 3, 1});
    for (int round = 1; round <= 50; ++round) {
      arrived.fetch_add(1);
      collectives.barrier();
      SLIMPIPE_CHECK(arrived.load() >= round * kDevices, "round {}: {} arrived", round, arrived.load());
      collectives.barrier();
    }
  });
}

TEST_CASE("a group must contain its device, and each device once", "[unit]") {
  FirstError first_error;
  const auto transport = make_in_process_transport(3, first_error);
  CHECK_THROWS_AS(Collectives(transport->endpoint(0), 0, {1, 2}), Error);
  CHECK_THROWS_AS(Collectives(transport->endpoint(0), 0, {0, 1, 1}), Error);
  Collectives alone(transport->endpoint(2), 2, {2});
  CHECK(alone.rank() == 0);
  CHECK(alone.size() == 1);
}

TEST_CASE("a device that fails elsewhere gives up its messages and ends the waits of the others", "[unit]") {
  InProcessHarness harness(2);
  // Outlive the devices: until a failed one has given up its messages, others may read what it posted.
  std::array<std::vector<double>, 2> buffers;
  const auto outcomes = harness.run([&](const test::DeviceContext& context) {
    std::vector<double>& buffer = buffers[context.device];
    buffer.resize(100'000);
    const auto bytes = static_cast<std::int64_t>(buffer.size() * sizeof(double));
    if (context.device == 0) {
      (void)context.endpoint.post_send(kZeroToOne, buffer.data(), bytes);
      throw_error("device 0 fails");
    }
    // The first message may or may not come in time; the second never does.
    const Ticket first = context.endpoint.post_receive(kZeroToOne, buffer.data(), bytes);
    const Ticket second = context.endpoint.post_receive(kZeroToOne, buffer.data(), bytes);
    context.endpoint.wait(first);
    context.endpoint.wait(second);
  });
  CHECK(outcomes[0].error() == "device 0 fails");
  CHECK(outcomes[1].stopped());
}

TEST_CASE("messages that were given up are never written", "[unit]") {
  FirstError first_error;
  const auto transport = make_in_process_transport(2, first_error);
  int received = 5;
  const int sent = 6;
  const Ticket given_up = transport->endpoint(1).post_receive(kZeroToOne, &received, sizeof received);
  transport->endpoint(1).abandon();
  const Ticket unmatched = transport->endpoint(0).post_send(kZeroToOne, &sent, sizeof sent);
  CHECK(received == 5);
  CHECK_THROWS_AS(transport->endpoint(1).wait(given_up), Error);
  CHECK_THROWS_AS(transport->endpoint(1).post_receive(kZeroToOne, &received, sizeof received), Stopped);
  first_error.set(std::make_exception_ptr(Error("fails")), {});
  CHECK_THROWS_AS(transport->endpoint(0).wait(unmatched), Stopped);  // it was not done
}

TEST_CASE("a message that arrived can be waited for after a stop, one that did not cannot", "[unit]") {
  FirstError first_error;
  const auto transport = make_in_process_transport(2, first_error);
  const std::array<int, 2> sent = {6, 7};
  std::array<int, 2> received = {};
  Endpoint& receiver = transport->endpoint(1);
  const Ticket arrives = receiver.post_receive(kZeroToOne, received.data(), sizeof(int));
  const Ticket never = receiver.post_receive(kZeroToOne, received.data() + 1, sizeof(int));
  const Ticket send = transport->endpoint(0).post_send(kZeroToOne, sent.data(), sizeof(int));
  first_error.set(std::make_exception_ptr(Error("fails")), {});
  receiver.wait(arrives);
  transport->endpoint(0).wait(send);
  CHECK(received[0] == 6);
  CHECK_THROWS_AS(receiver.wait(never), Stopped);
}

TEST_CASE("posts that make no sense are refused", "[unit]") {
  FirstError first_error;
  const auto transport = make_in_process_transport(2, first_error);
  Endpoint& zero = transport->endpoint(0);
  int value = 0;
  CHECK_THROWS_AS(zero.post_receive(kZeroToOne, &value, 4), Error);                    // the other end's
  CHECK_THROWS_AS(zero.post_send({.source = 0, .destination = 0}, &value, 4), Error);  // itself
  CHECK_THROWS_AS(zero.post_send({.source = 0, .destination = 2}, &value, 4), Error);  // no such device
  CHECK_THROWS_AS(zero.post_send({.source = 0, .destination = -1}, &value, 4), Error);
  CHECK_THROWS_AS(zero.post_send(kZeroToOne, &value, -1), Error);
  CHECK_THROWS_AS(zero.post_send(kZeroToOne, nullptr, 1), Error);
  CHECK_THROWS_AS(zero.wait(1), Error);
  CHECK_THROWS_AS(transport->endpoint(2), Error);
  CHECK_THROWS_AS(make_in_process_transport(0, first_error), Error);
  // None of them took a message number or left anything behind.
  const Ticket send = zero.post_send(kZeroToOne, &value, 4);
  int received = 1;
  Endpoint& one = transport->endpoint(1);
  one.wait(one.post_receive(kZeroToOne, &received, 4));
  zero.wait(send);
  CHECK(received == 0);
  CHECK_THROWS_AS(zero.wait(send), Error);  // waited for twice
}

TEST_CASE("a stop after the transport is gone is harmless", "[unit]") {
  FirstError first_error;
  { const auto transport = make_in_process_transport(2, first_error); }
  CHECK(first_error.set(std::make_exception_ptr(Error("late")), {}));
}

}  // namespace slimpipe::comm
