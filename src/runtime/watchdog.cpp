#include "slimpipe/runtime/watchdog.h"

#include <algorithm>

#include "slimpipe/core/check.h"

namespace slimpipe::runtime {

Watchdog::Watchdog(WatchdogOptions options, std::vector<const Progress*> devices, FirstError& first_error)
    : options_(std::move(options)), devices_(std::move(devices)), first_error_(first_error) {
  SLIMPIPE_CHECK(options_.quiet.count() > 0, "a watchdog that never sleeps");
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
    text += fmt::format("\n  device {}: {}{}", device->device(), device->waiting() ? "waits in " : "",
                        device->describe());
  }
  return text;
}

void Watchdog::loop() {
  std::unique_lock lock(mutex_);
  std::int64_t last_moves = -1;
  int quiet_periods = 0;
  while (!ending_) {
    if (!watching_) {
      wake_.wait(lock, [this] { return ending_ || watching_; });
      last_moves = -1;
      continue;
    }
    const bool changed = wake_.wait_for(lock, options_.quiet, [this] { return ending_ || !watching_; });
    if (changed) continue;
    const std::int64_t now = moves();
    const bool moved = now != last_moves;
    last_moves = now;
    quiet_periods = moved ? 0 : quiet_periods + 1;
    if (moved) continue;
    const double seconds = std::chrono::duration<double>(options_.quiet).count() * quiet_periods;
    const std::string text = fmt::format("nothing has moved for {:.3g} s:{}", seconds, describe());
    if (options_.report) options_.report(text);
    const bool all_wait = std::ranges::all_of(devices_, [](const Progress* d) { return d->waiting(); });
    if (all_wait && quiet_periods >= options_.give_up_after) {
      first_error_.set(std::make_exception_ptr(Error("given up: " + text)), {});
    }
  }
}

}  // namespace slimpipe::runtime
