#pragma once
// The messages of this process that MPI carries: tags, requests, completion. Not thread-safe: one thread at
// a time owns it and with it makes every MPI call of the transport.
//
// MPI matches messages of one (communicator, source, tag) in the order posted, so a tag for each channel
// gives "the k-th send meets the k-th receive" without numbers on the wire.

#include <cstdint>
#include <memory>
#include <mpi.h>
#include <string>
#include <vector>

#include "slimpipe/comm/topology.h"
#include "slimpipe/comm/transport.h"

#include "comm/posting.h"
#include "comm/wait_watch.h"

namespace slimpipe::comm {

/// One end of a message to or from another process. Everything but the last three is set before it is
/// given to MpiRequests, whose poll() sets `error`, empty where all went well, and `done_at`; `done` is its
/// owner's to set.
struct MpiMessage {
  Direction direction = Direction::kSend;
  Channel channel;
  std::int64_t number = 0;  ///< on its channel, from 0
  const void* source = nullptr;
  void* destination = nullptr;
  std::int64_t bytes = 0;
  std::string error;
  Moment done_at;
  bool done = false;
};
using MpiMessagePointer = std::shared_ptr<MpiMessage>;

class MpiRequests {
 public:
  /// Duplicates the world communicator (all processes together), once for the devices' messages and once for
  /// control traffic, and checks that every channel has a tag.
  /// A message longer than `max_plain_bytes` is sent as one element of a derived type, since MPI counts
  /// are int; tests lower the limit. `patience` is for the others to come to the making of the communicators.
  MpiRequests(const Topology& topology, int max_plain_bytes, PatienceLimits patience);
  ~MpiRequests();
  MpiRequests(const MpiRequests&) = delete;
  MpiRequests& operator=(const MpiRequests&) = delete;

  /// Posts the message; never blocks.
  void start(MpiMessagePointer message);
  /// Lets MPI move data. Returns the messages that ended with this call, their `done` not yet set: that is
  /// for the owner, under whatever lock its readers use.
  [[nodiscard]] std::vector<MpiMessagePointer> poll();
  [[nodiscard]] bool idle() const { return requests_.empty(); }
  /// Gives up all outstanding messages without waiting for anybody. Receives that have not met their send
  /// are cancelled, which is local. What MPI has begun to move it would still move, but only from inside
  /// MPI calls, and a process that gives up messages makes none before it aborts the run.
  void abandon() noexcept;

 private:
  [[nodiscard]] int tag_of(const Channel& channel) const;
  [[nodiscard]] MPI_Comm communicator_of(const Channel& channel) const;
  void check_tags() const;

  const Topology topology_;
  const int max_plain_bytes_;
  MPI_Comm messages_communicator_ = MPI_COMM_NULL;
  MPI_Comm control_communicator_ = MPI_COMM_NULL;
  bool abandoned_ = false;
  WaitWatch watch_;  ///< of the communicators' making and freeing
  // Outstanding, in the order posted; the two run in parallel as MPI wants an array of requests.
  std::vector<MPI_Request> requests_;
  std::vector<MpiMessagePointer> messages_;
  // Arguments of MPI_Testsome, kept to avoid allocation.
  std::vector<int> finished_;
  std::vector<MPI_Status> statuses_;
};

}  // namespace slimpipe::comm
