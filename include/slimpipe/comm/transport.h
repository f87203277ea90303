#pragma once
// Messages between devices. A directed channel (source, destination, purpose) carries messages in the
// order they are posted at each end; the k-th send matches the k-th receive, both ends know the size
// beforehand, and nothing else is exchanged (no handshake of shapes).
//
// In-process queues and MPI implement the same interface and pass the same test suite.

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "slimpipe/comm/topology.h"
#include "slimpipe/core/patience.h"
#include "slimpipe/core/stop.h"

namespace slimpipe::comm {

enum class Purpose : std::uint8_t {
  kActivation,      ///< hidden states, stage g to g + 1
  kGradient,        ///< their gradients, stage g + 1 to g
  kTiedGradient,    ///< gradients of tied embeddings, first and last stage
  kControl,         ///< small reductions between steps
  kExchangeKeys,    ///< K and V that a helper attends to, owner to helper
  kExchangeQuery,   ///< what it attends with
  kExchangeResult,  ///< partial attention or its gradients, helper to owner
};
inline constexpr int kNumPurposes = 7;
[[nodiscard]] const char* name_of(Purpose purpose);

struct Channel {
  int source = 0;       ///< device index
  int destination = 0;  ///< device index, different from source
  Purpose purpose = Purpose::kControl;
  auto operator<=>(const Channel&) const = default;  // NOLINT(modernize-use-nullptr): misread by clang-tidy
};

/// Identifies a posted message to the endpoint that posted it. Waited for exactly once.
using Ticket = std::int64_t;

using Moment = std::chrono::steady_clock::time_point;

/// A device's end of the transport. All calls come from the thread that drives the device.
class Endpoint {
 public:
  virtual ~Endpoint() = default;
  /// `data` stays valid and unchanged until wait(ticket) returns. Never blocks.
  [[nodiscard]] virtual Ticket post_send(const Channel& channel, const void* data, std::int64_t bytes) = 0;
  /// `data` is written some time before wait(ticket) returns. Never blocks.
  [[nodiscard]] virtual Ticket post_receive(const Channel& channel, void* data, std::int64_t bytes) = 0;
  /// Blocks until the message is done: a receive's data has arrived, a send's buffer may be reused (which
  /// may need the receiver to have posted: treat it as a rendezvous). Throws Stopped when the run is
  /// stopped, Error where the two ends disagree about the size (naming channel, message number, both sizes;
  /// between processes only the receiving end can see that). A wait that throws has done abandon() first.
  /// Returns when the transport saw the message done, which may be long before the call.
  virtual Moment wait(Ticket ticket) = 0;
  /// Gives the transport a chance to move data; called between steps, cheap where nothing is in flight.
  virtual void progress() = 0;
  /// Gives up every message of this endpoint that has not been waited for; afterwards their buffers may be
  /// freed and nothing can be posted. For a device that fails elsewhere than in wait, before its buffers
  /// go; it then reports its failure to FirstError, which ends the waits of the others. Waits at most for
  /// a copy under way.
  virtual void abandon() noexcept = 0;
};

class Transport {
 public:
  virtual ~Transport() = default;
  /// The endpoint of a local device; made at start, owned by the transport.
  [[nodiscard]] virtual Endpoint& endpoint(int device) = 0;
};

/// Queues between threads of this process; all devices are local.
[[nodiscard]] std::unique_ptr<Transport> make_in_process_transport(int devices, FirstError& first_error);

struct MpiTransportOptions {
  bool spare_core = false;  ///< this process has a core beyond those its devices compute with
  PatienceLimits patience;  ///< how long it waits for the other processes to make the transport with it
};

/// In-process queues between the devices of one process, MPI between processes. MPI must be initialised
/// (comm/mpi.h). This MPI moves data only inside its calls. An engine thread of this process makes them, so
/// that messages move while devices compute; but where the process has one device and no spare core for such
/// a thread, the device's thread makes them, from post, wait and progress, and messages move between
/// its steps. Uses a communicator of its own, which all processes make together; checks that its tags fit
/// MPI_TAG_UB.
[[nodiscard]] std::unique_ptr<Transport> make_mpi_transport(const Topology& topology, FirstError& first_error,
                                                            const MpiTransportOptions& options);

}  // namespace slimpipe::comm
