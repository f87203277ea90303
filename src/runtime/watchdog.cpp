#include "slimpipe/runtime/watchdog.h"

#include <algorithm>

#include "slimpipe/core/check.h"

namespace slimpipe::runtime {

Watchdog::Watchdog(WatchdogOptions options, std::vector<const Progress*> devices, FirstError& first_error)
    : options_(std::move(options)), devices_(std::move(devices)), first_error_(first_error) {
  thread_ = std::thread([this] { loop(); });
}

Watchdog::~Watchdog() {
  {
    const std::scoped_lock lock(mutex_);
    ending_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void Watchdog::resume() {
  const std::scoped_lock lock(mutex_);
  watching_ = true;
  wake_.notify_all();
}

void Watchdog::pause() {
  const std::scoped_lock lock(mutex_);
  watching_ = false;
  wake_.notify_all();
}

std::int64_t Watchdog::moves() const {
  std::int64_t sum = 0;
  for (const Progress* device : devices_) sum += device->moves();
  return sum;
}

std::string Watchdog::describe() const {
  std::string text;
  for (const Progress* device : devices_) {
    text += fmt::format("\n  device {}: {}{}", device->device(), device->waiting() ? "waiting, " : "",
                        device->describe());
  }
  return text;
}

bool Watchdog::all_wait() const {
  return std::ranges::all_of(devices_, &Progress::waiting);
}

namespace {
/// Devices of other processes may be busy, which nothing here can see.
constexpr const char* kIfHealthy =
    "\n  (where one step of another process, or its part of a checkpoint, takes longer than that: raise "
    "log.watchdog_seconds, ten times of which is the limit)";
}  // namespace

void Watchdog::loop() {
  using Clock = std::chrono::steady_clock;
  Patience patience(options_.patience);
  std::unique_lock lock(mutex_);
  std::int64_t last_moves = -1;
  while (!ending_) {
    if (!watching_) {
      wake_.wait(lock, [this] { return ending_ || watching_; });
      patience.restart(Clock::now());
      continue;
    }
    if (wake_.wait_for(lock, patience.interval(), [this] { return ending_ || !watching_; })) continue;
    if (const std::int64_t now = moves(); now != last_moves) {
      last_moves = now;
      patience.restart(Clock::now());
      continue;
    }
    const Patience::Verdict verdict = patience.look(Clock::now());
    const bool give_up = verdict.give_up && all_wait() && !first_error_.stopped();
    if (!verdict.report && !give_up) continue;
    const double seconds = std::chrono::duration<double>(verdict.quiet).count();
    const std::string text = fmt::format("nothing has moved for {:.3g} s:{}", seconds, describe());
    if (verdict.report && options_.report) options_.report(text);
    if (give_up) first_error_.set(std::make_exception_ptr(Error("given up: " + text + kIfHealthy)), {});
  }
}

}  // namespace slimpipe::runtime
