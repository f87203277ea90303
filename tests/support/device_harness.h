#pragma once
// Runs the bodies of devices over a transport, each on a thread of its own, as a run does: the tests of
// transports are written against this and do not know which transport they run on.

#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "slimpipe/comm/transport.h"
#include "slimpipe/core/check.h"

namespace slimpipe::test {

struct DeviceContext {
  int device;
  comm::Endpoint& endpoint;
  FirstError& first_error;
};

/// How the body of one device ended: `failure` is null where it returned.
struct DeviceOutcome {
  int device = 0;
  std::exception_ptr failure;

  [[nodiscard]] bool stopped() const {
    try {
      if (failure) std::rethrow_exception(failure);
    } catch (const Stopped&) {
      return true;
    } catch (...) {
      return false;
    }
    return false;
  }

  /// The text of a failure that is not Stopped, or empty.
  [[nodiscard]] std::string error() const {
    try {
      if (failure) std::rethrow_exception(failure);
    } catch (const Stopped&) {
      return {};
    } catch (const std::exception& error) {
      return error.what();
    }
    return {};
  }
};

class DeviceHarness {
 public:
  using Body = std::function<void(const DeviceContext&)>;

  virtual ~DeviceHarness() = default;
  /// In all processes.
  [[nodiscard]] virtual int devices() const = 0;
  [[nodiscard]] virtual std::vector<int> local_devices() const = 0;

  [[nodiscard]] bool is_local(int device) const {
    const std::vector<int> local = local_devices();
    return device >= local.front() && device <= local.back();
  }

  /// Runs `body` for each device of this process over a fresh transport; returns when all have ended, in
  /// every process.
  std::vector<DeviceOutcome> run(const Body& body) {
    std::vector<DeviceOutcome> outcomes = run_here(body);
    synchronise();
    return outcomes;
  }

  /// As run, where every body is expected to return. Otherwise throws the first failure, without waiting
  /// for other processes: they may wait for this one.
  void run_well(const Body& body) {
    for (const DeviceOutcome& outcome : run_here(body)) {
      if (outcome.failure && !outcome.stopped()) std::rethrow_exception(outcome.failure);
    }
    synchronise();
  }

 protected:
  [[nodiscard]] virtual std::unique_ptr<comm::Transport> make_transport(FirstError& first_error) = 0;
  /// Waits until every process has come here.
  virtual void synchronise() {}

 private:
  std::vector<DeviceOutcome> run_here(const Body& body) {
    std::vector<DeviceOutcome> outcomes;
    for (const int device : local_devices()) outcomes.push_back({device, nullptr});
    FirstError first_error;
    const auto transport = make_transport(first_error);
    std::vector<std::thread> threads;
    threads.reserve(outcomes.size());
    for (DeviceOutcome& outcome : outcomes) {
      threads.emplace_back([&] { run_device(body, *transport, first_error, outcome); });
    }
    for (std::thread& thread : threads) thread.join();
    return outcomes;
  }

  static void run_device(const Body& body, comm::Transport& transport, FirstError& first_error,
                         DeviceOutcome& outcome) {
    comm::Endpoint& endpoint = transport.endpoint(outcome.device);
    try {
      body({outcome.device, endpoint, first_error});
    } catch (...) {
      outcome.failure = std::current_exception();
      endpoint.abandon();
      first_error.set(outcome.failure, {.device = outcome.device});
    }
  }
};

}  // namespace slimpipe::test
