#pragma once
// Watches calls of MPI that return only when other processes do their part, and that nothing can end.

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "slimpipe/core/patience.h"

namespace slimpipe::comm {

class WaitWatch {
 public:
  /// Gets the whole text; called on the watch's thread.
  using Tell = std::function<void(const std::string&)>;

  /// `who` waits: "rank 2". Where it has waited too long, `give_up` is called once for the wait; it ends the
  /// process where none is passed, and the launcher then ends the others.
  WaitWatch(PatienceLimits limits, std::string who, Tell report = warn, Tell give_up = end_process);
  ~WaitWatch();
  WaitWatch(const WaitWatch&) = delete;
  WaitWatch& operator=(const WaitWatch&) = delete;

  /// From now on `who` waits for this: "rank 3 at the start of the run". Again: for something else, which
  /// counts from the start.
  void begin(std::string awaited);
  void end();

 private:
  void loop();
  static void warn(const std::string& text);
  static void end_process(const std::string& text);

  Patience patience_;
  std::string who_;
  Tell report_;
  Tell give_up_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string awaited_;  ///< empty: does not wait
  bool restart_ = false;
  bool given_up_ = false;
  bool ending_ = false;
  std::thread thread_;
};

/// A wait for as long as this lives.
class Waiting {
 public:
  Waiting(WaitWatch& watch, std::string awaited) : watch_(watch) { watch_.begin(std::move(awaited)); }
  ~Waiting() { watch_.end(); }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

 private:
  WaitWatch& watch_;
};

}  // namespace slimpipe::comm
