#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "comm/mpi_driver.h"
#include "comm/short_sleep.h"

namespace slimpipe::comm {
namespace {

/// Between polls while messages are outstanding. A post ends the pause.
constexpr std::chrono::microseconds kPollInterval{20};

int local_device(const MpiMessage& message) {
  return message.direction == Direction::kSend ? message.channel.source : message.channel.destination;
}

/// What devices and the engine thread share, and the engine thread's loop. Outlives the driver where the
/// stop listener is just using it.
class Engine {
 public:
  Engine(MpiRequests& requests, const Topology& topology, FirstError& first_error)
      : requests_(requests),
        this_process_(topology.this_process()),
        first_device_(topology.local_devices().front()),
        changed_(topology.local_devices().size()),
        first_error_(first_error) {}

  void submit(MpiMessagePointer message) {
    {
      const std::scoped_lock lock(mutex_);
      submitted_.push_back(std::move(message));
    }
    work_.notify_one();
  }

  bool wait(const MpiMessage& message) {
    std::unique_lock lock(mutex_);
    changed(message).wait(lock, [&] { return message.done || (ended_ && first_error_.stopped()); });
    return message.done;
  }

  /// Makes run() return; afterwards no MPI call is made.
  void end() noexcept {
    std::unique_lock lock(mutex_);
    ending_ = true;
    work_.notify_one();
    at_rest_.wait(lock, [&] { return ended_; });
  }

  void wake_all() {
    // Whoever found the run not stopped holds the mutex until it sleeps: past this lock it can be woken.
    { const std::scoped_lock lock(mutex_); }
    work_.notify_one();
    for (auto& condition : changed_) condition.notify_all();
  }

  /// The engine thread.
  void run() noexcept {
    allow_short_sleeps();
    try {
      serve();
    } catch (...) {
      first_error_.set(std::current_exception(),
                       {.rank = this_process_, .action = "moving messages between processes"});
    }
    if (!requests_.idle() || first_error_.stopped()) requests_.abandon();
    {
      const std::scoped_lock lock(mutex_);
      ended_ = true;
    }
    at_rest_.notify_all();
    wake_all();
  }

 private:
  void serve() {
    std::unique_lock lock(mutex_);
    const auto asked_to_end = [&] { return ending_ || first_error_.stopped(); };
    while (!asked_to_end()) {
      if (submitted_.empty() && requests_.idle()) {
        work_.wait(lock, [&] { return asked_to_end() || !submitted_.empty(); });
        continue;
      }
      const auto batch = std::exchange(submitted_, {});
      lock.unlock();
      for (const MpiMessagePointer& message : batch) requests_.start(message);
      const auto ended = requests_.poll();
      lock.lock();
      if (!publish(ended)) return;
      if (ended.empty() && submitted_.empty() && !asked_to_end()) work_.wait_for(lock, kPollInterval);
    }
  }

  /// With the mutex held. Whether all ended well.
  bool publish(const std::vector<MpiMessagePointer>& ended) {
    bool well = true;
    for (const MpiMessagePointer& message : ended) {
      message->done = true;
      well = well && message->error.empty();
      changed(*message).notify_all();
    }
    return well;
  }

  std::condition_variable& changed(const MpiMessage& message) {
    return changed_[static_cast<std::size_t>(local_device(message) - first_device_)];
  }

  MpiRequests& requests_;  ///< the engine thread's, until it has ended
  const int this_process_;
  const int first_device_;
  std::mutex mutex_;  ///< guards everything below and `done` of all messages
  std::vector<MpiMessagePointer> submitted_;
  bool ending_ = false;
  bool ended_ = false;
  std::condition_variable work_;
  std::condition_variable at_rest_;
  std::deque<std::condition_variable> changed_;  ///< by local device: one of its messages is done
  FirstError& first_error_;
};

class EngineDriver final : public MpiDriver {
 public:
  EngineDriver(std::unique_ptr<MpiRequests> requests, const Topology& topology, FirstError& first_error)
      : requests_(std::move(requests)),
        engine_(std::make_shared<Engine>(*requests_, topology, first_error)),
        thread_([engine = engine_.get()] { engine->run(); }) {
    first_error.on_stop([watched = std::weak_ptr<Engine>(engine_)] {
      if (const auto engine = watched.lock()) engine->wake_all();
    });
  }
  ~EngineDriver() override {
    engine_->end();
    thread_.join();
  }
  EngineDriver(const EngineDriver&) = delete;
  EngineDriver& operator=(const EngineDriver&) = delete;

  void submit(MpiMessagePointer message) override { engine_->submit(std::move(message)); }
  bool wait(const MpiMessage& message) override { return engine_->wait(message); }
  void progress() override {}  // the engine thread does that
  void abandon() noexcept override { engine_->end(); }

 private:
  std::unique_ptr<MpiRequests> requests_;
  std::shared_ptr<Engine> engine_;
  std::thread thread_;
};

}  // namespace

std::unique_ptr<MpiDriver> make_engine_driver(std::unique_ptr<MpiRequests> requests, const Topology& topology,
                                              FirstError& first_error) {
  return std::make_unique<EngineDriver>(std::move(requests), topology, first_error);
}

}  // namespace slimpipe::comm
