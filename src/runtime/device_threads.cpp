#include "slimpipe/runtime/device_threads.h"

#include <system_error>

#include "slimpipe/core/check.h"

namespace slimpipe::runtime {

DeviceThreads::DeviceThreads(int count, FirstError& first_error, Site site)
    : first_error_(first_error), site_(std::move(site)) {
  threads_.reserve(count);
  try {
    for (int i = 0; i < count; ++i) threads_.emplace_back([this, i] { loop(i); });
  } catch (const std::system_error& error) {
    const std::size_t started = threads_.size();
    end();
    throw_error(
        "{} devices in this process need a thread each, and after {} the system starts no more: {}; raise "
        "what it "
        "may use (ulimit -u, ulimit -v), or share the devices among more processes",
        count, started, error.code().message());
  }
}

DeviceThreads::~DeviceThreads() {
  end();
}

void DeviceThreads::end() {
  {
    const std::scoped_lock lock(mutex_);
    ending_ = true;
  }
  work_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void DeviceThreads::each(const std::function<void(int)>& body) {
  std::unique_lock lock(mutex_);
  body_ = &body;
  running_ = count();
  ++round_;
  work_.notify_all();
  done_.wait(lock, [this] { return running_ == 0; });
  body_ = nullptr;
  lock.unlock();
  if (const auto report = first_error_.report()) std::rethrow_exception(report->exception);
}

void DeviceThreads::loop(int index) {
  std::uint64_t seen = 0;
  std::unique_lock lock(mutex_);
  while (true) {
    work_.wait(lock, [&] { return ending_ || round_ != seen; });
    if (ending_) return;
    seen = round_;
    lock.unlock();
    run_body(index);
    lock.lock();
    if (--running_ == 0) done_.notify_all();
  }
}

void DeviceThreads::run_body(int index) {
  try {
    (*body_)(index);
  } catch (const Stopped&) {
    // Gave up because another device failed; that failure is the one to report.
    if (!first_error_.stopped()) first_error_.set(std::current_exception(), site_(index));
  } catch (...) {
    first_error_.set(std::current_exception(), site_(index));
  }
}

}  // namespace slimpipe::runtime
