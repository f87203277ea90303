#include "comm/wait_watch.h"

#include <cstdlib>
#include <utility>

#include "slimpipe/core/check.h"
#include "slimpipe/core/log.h"

namespace slimpipe::comm {

WaitWatch::WaitWatch(PatienceLimits limits, std::string who, Tell report, Tell give_up)
    : patience_(limits), who_(std::move(who)), report_(std::move(report)), give_up_(std::move(give_up)) {
  thread_ = std::thread([this] { loop(); });
}

WaitWatch::~WaitWatch() {
  {
    const std::scoped_lock lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void WaitWatch::begin(std::string awaited) {
  const std::scoped_lock lock(mutex_);
  awaited_ = std::move(awaited);
  restart_ = true;
  given_up_ = false;
  changed_.notify_all();
}

void WaitWatch::end() {
  const std::scoped_lock lock(mutex_);
  awaited_.clear();
  changed_.notify_all();
}

void WaitWatch::loop() {
  std::unique_lock lock(mutex_);
  while (!ending_) {
    if (awaited_.empty()) {
      changed_.wait(lock, [this] { return ending_ || !awaited_.empty(); });
      continue;
    }
    if (std::exchange(restart_, false)) patience_.restart(std::chrono::steady_clock::now());
    if (changed_.wait_for(lock, patience_.interval(),
                          [this] { return ending_ || restart_ || awaited_.empty(); })) {
      continue;
    }
    const Patience::Verdict verdict = patience_.look(std::chrono::steady_clock::now());
    const bool give_up = verdict.give_up && !std::exchange(given_up_, verdict.give_up);
    if (!verdict.report && !give_up) continue;
    const std::string text = fmt::format("{} has waited {:.3g} s for {}", who_,
                                         std::chrono::duration<double>(verdict.quiet).count(), awaited_);
    if (verdict.report) report_(text);
    if (give_up) {
      give_up_(fmt::format(
          "given up: {}. See whether a process is stopped, or its host out of "
          "reach; where one is only slow, raise log.watchdog_seconds, ten times of which is the limit",
          text));
    }
  }
}

void WaitWatch::warn(const std::string& text) {
  log::warning("{}", text);
}

void WaitWatch::end_process(const std::string& text) {
  log::error("{}", text);
  log::flush();
  // The main thread is inside MPI, so nothing but this ends it.
  std::_Exit(kExitFailure);
}

}  // namespace slimpipe::comm
