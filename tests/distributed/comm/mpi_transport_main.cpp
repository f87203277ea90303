// Tests of the MPI transport and session, a command each; started by mpirun with the number of devices.

#include <chrono>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <fmt/core.h>
#include <string>
#include <string_view>
#include <thread>
#include <unistd.h>

#include "slimpipe/comm/mpi.h"
#include "slimpipe/comm/transport.h"
#include "slimpipe/core/check.h"
#include "slimpipe/core/log.h"

#include "support/mpi_harness.h"
#include "support/transport_suite.h"

namespace slimpipe::comm {
namespace {

constexpr int kReportedStatus = 7;
constexpr PatienceLimits kShort{.report_every = std::chrono::milliseconds(200),
                                .give_up_after = std::chrono::seconds(1)};

using test::MpiHarness;

/// The whole suite with each caller of MPI, with plain messages, and with those above 5003 bytes taking the
/// way of long ones.
void run_suite(MpiSession& session, int devices) {
  for (const bool spare_core : {false, true}) {
    if (spare_core && devices > session.environment().size) continue;  // an engine thread calls in any case
    for (const int max_plain_bytes : {INT_MAX, 5003}) {
      MpiHarness harness(session, devices, spare_core, max_plain_bytes);
      test::run_transport_suite(harness);
    }
  }
}

void run_session(MpiSession& session, int devices) {
  const ProcessEnvironment& environment = session.environment();
  SLIMPIPE_CHECK(environment.mpi && environment.size == devices, "{} processes", environment.size);
  SLIMPIPE_CHECK(environment.local_size == devices && environment.local_rank == environment.rank,
                 "rank {} is {} of {} on this host", environment.rank, environment.local_rank,
                 environment.local_size);
  for (const std::string_view text : {"", "config: of rank 0\n"}) {
    const std::string own = environment.rank == 0 ? std::string(text) : "something else";
    const std::string found = session.broadcast(own);
    SLIMPIPE_CHECK(found == text, "rank {} was told '{}'", environment.rank, found);
  }
  session.barrier();
  // A topology that does not fit the world is refused before anything is sent.
  FirstError first_error;
  try {
    (void)make_mpi_transport(Topology({.pipeline = 2 * devices}, 2 * devices, 0), first_error,
                             MpiTransportOptions{});
  } catch (const Error&) {
    return;
  }
  throw_error("a topology of {} processes was accepted in a world of {}", 2 * devices, devices);
}

void run_long_message(MpiSession& session, int devices) {
  constexpr std::int64_t kBytes = (std::int64_t{1} << 31) + 12'345;
  MpiHarness harness(session, devices, false);
  const Channel channel{.source = 0, .destination = devices - 1, .purpose = Purpose::kActivation};
  harness.run_well([&](const test::DeviceContext& context) {
    if (context.device != 0 && context.device != devices - 1) return;
    test::GuardedBuffer buffer(kBytes);
    if (context.device == 0) {
      buffer.fill(3);
      context.endpoint.wait(context.endpoint.post_send(channel, buffer.data(), kBytes));
    } else {
      context.endpoint.wait(context.endpoint.post_receive(channel, buffer.data(), kBytes));
      SLIMPIPE_CHECK(buffer.holds(3), "a message of {} bytes arrived with wrong bytes", kBytes);
    }
  });
}

[[noreturn]] void die(MpiSession& session, std::string_view death) {
  std::this_thread::sleep_for(std::chrono::milliseconds(100));  // the others are waiting by now
  if (death == "exit") _exit(5);
  if (death == "report") session.abort(kReportedStatus);
  throw_error("the test's exception");
}

/// Every process waits for a message from the last device, whose process dies instead of sending it.
void run_death(MpiSession& session, int devices, std::string_view death) {
  const ProcessEnvironment& environment = session.environment();
  fmt::print("pid {}\n", getpid());
  std::fflush(stdout);
  session.barrier();
  const Topology topology({.pipeline = devices}, environment.size, environment.rank);
  FirstError first_error;
  const auto transport = make_mpi_transport(topology, first_error, MpiTransportOptions{});
  if (environment.rank == environment.size - 1) die(session, death);
  const int device = topology.local_devices().front();
  Endpoint& endpoint = transport->endpoint(device);
  endpoint.wait(endpoint.post_receive({.source = devices - 1, .destination = device}, nullptr, 0));
}

/// The last process stops where the others wait for it, and nothing else ends them.
void run_absence(MpiSession& session, int devices, std::string_view command) {
  const ProcessEnvironment& environment = session.environment();
  fmt::print("pid {}\n", getpid());
  std::fflush(stdout);
  session.barrier();
  if (environment.rank == environment.size - 1) std::raise(SIGSTOP);
  if (command == "absent") return session.barrier();
  FirstError first_error;
  (void)make_mpi_transport(Topology({.pipeline = devices}, environment.size, environment.rank), first_error,
                           {.patience = kShort});
}

void run(MpiSession& session, std::string_view command, int devices) {
  if (command == "suite") return run_suite(session, devices);
  if (command == "session") return run_session(session, devices);
  if (command == "long") return run_long_message(session, devices);
  if (command == "exit" || command == "report" || command == "throw") {
    return run_death(session, devices, command);
  }
  if (command == "absent" || command == "no_transport") return run_absence(session, devices, command);
  throw_error("unknown command '{}'", command);
}

int run_and_report(std::string_view command, int devices) {
  MpiSession session(command == "absent" ? kShort : PatienceLimits{});
  log::configure({.rank = session.environment().rank});
  if (command == "throw") {
    run(session, command, devices);  // the exception passes through the session
    return EXIT_SUCCESS;
  }
  try {
    run(session, command, devices);
  } catch (const std::exception& error) {
    log::error("{}", error.what());
    session.abort(EXIT_FAILURE);
  }
  return EXIT_SUCCESS;
}

}  // namespace
}  // namespace slimpipe::comm

int main(int argc, char** argv) {
  if (argc != 3) {
    fmt::print(stderr, "usage: {} suite|session|long|exit|throw|report|absent|no_transport DEVICES\n",
               argv[0]);
    return 2;
  }
  try {
    return slimpipe::comm::run_and_report(argv[1], std::atoi(argv[2]));
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return EXIT_FAILURE;
  }
}
