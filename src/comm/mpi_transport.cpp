#include "comm/mpi_transport.h"

#include <climits>
#include <utility>
#include <vector>

#include "slimpipe/core/check.h"

#include "comm/in_process_transport.h"
#include "comm/mpi_driver.h"
#include "comm/posting.h"
#include "comm/tickets.h"

namespace slimpipe::comm {
namespace {

/// A device's messages to and from other processes.
class RemoteEndpoint final : public Endpoint {
 public:
  RemoteEndpoint(MpiDriver& driver, int device, const Topology& topology)
      : driver_(driver), ledger_(device, 0, topology.devices()) {}

  Ticket post_send(const Channel& channel, const void* data, std::int64_t bytes) override {
    return post(Direction::kSend, channel, data, nullptr, bytes);
  }

  Ticket post_receive(const Channel& channel, void* data, std::int64_t bytes) override {
    return post(Direction::kReceive, channel, nullptr, data, bytes);
  }

  Moment wait(Ticket ticket) override {
    const MpiMessagePointer message = tickets_.at(ticket);
    const bool done = driver_.wait(*message);
    if (done && message->error.empty()) {
      tickets_.erase(ticket);
      return message->done_at;
    }
    abandon();
    if (done) throw Error(message->error);
    throw_stopped(message->channel, message->number);
  }

  void progress() override { driver_.progress(); }

  void abandon() noexcept override {
    // The device has failed, and with it the run: the other devices' messages are given up too, and their
    // waits end when the failure is reported.
    driver_.abandon();
    tickets_.close([](const MpiMessagePointer&) {});
  }

 private:
  Ticket post(Direction direction, const Channel& channel, const void* source, void* destination,
              std::int64_t bytes) {
    tickets_.check_open();
    auto message = std::make_shared<MpiMessage>();
    message->direction = direction;
    message->channel = channel;
    message->number =
        ledger_.enter(direction, channel, direction == Direction::kSend ? source : destination, bytes);
    message->source = source;
    message->destination = destination;
    message->bytes = bytes;
    driver_.submit(message);
    return tickets_.add(std::move(message));
  }

  MpiDriver& driver_;
  PostLedger ledger_;
  TicketTable<MpiMessage> tickets_;
};

/// Sends each message the way that reaches its other end. Tickets of both ways interleave: even numbers
/// are the local endpoint's, odd ones the remote's.
class MixedEndpoint final : public Endpoint {
 public:
  MixedEndpoint(Endpoint& local, MpiDriver& driver, int device, const Topology& topology)
      : local_(local), remote_(driver, device, topology), topology_(topology) {}

  Ticket post_send(const Channel& channel, const void* data, std::int64_t bytes) override {
    if (is_local(channel.destination)) return 2 * local_.post_send(channel, data, bytes);
    return 2 * remote_.post_send(channel, data, bytes) + 1;
  }

  Ticket post_receive(const Channel& channel, void* data, std::int64_t bytes) override {
    if (is_local(channel.source)) return 2 * local_.post_receive(channel, data, bytes);
    return 2 * remote_.post_receive(channel, data, bytes) + 1;
  }

  Moment wait(Ticket ticket) override {
    try {
      return way(ticket).wait(ticket / 2);
    } catch (...) {
      abandon();  // the way that failed has given up its messages, the other not yet
      throw;
    }
  }

  void progress() override { remote_.progress(); }
  void abandon() noexcept override {
    local_.abandon();
    remote_.abandon();
  }

 private:
  [[nodiscard]] bool is_local(int peer) const {
    return peer >= 0 && peer < topology_.devices() && topology_.is_local(peer);
  }
  Endpoint& way(Ticket ticket) { return ticket % 2 == 0 ? local_ : remote_; }

  Endpoint& local_;
  RemoteEndpoint remote_;
  const Topology topology_;
};

class MpiTransport final : public Transport {
 public:
  MpiTransport(const Topology& topology, FirstError& first_error, const MpiTransportOptions& options,
               int max_plain_bytes) {
    auto requests = std::make_unique<MpiRequests>(topology, max_plain_bytes, options.patience);
    const std::vector<int> local = topology.local_devices();
    first_device_ = local.front();
    if (local.size() == 1 && !options.spare_core) {
      driver_ = make_caller_driver(std::move(requests), first_error);
    } else {
      driver_ = make_engine_driver(std::move(requests), topology, first_error);
    }
    if (local.size() == 1) {
      endpoints_.push_back(std::make_unique<RemoteEndpoint>(*driver_, first_device_, topology));
      return;
    }
    local_ = make_in_process_transport(first_device_, static_cast<int>(local.size()), first_error);
    for (const int device : local) {
      endpoints_.push_back(
          std::make_unique<MixedEndpoint>(local_->endpoint(device), *driver_, device, topology));
    }
  }

  Endpoint& endpoint(int device) override {
    const int index = device - first_device_;
    SLIMPIPE_CHECK(index >= 0 && index < static_cast<int>(endpoints_.size()),
                   "device {} is not one of the {} devices from {} that this process drives", device,
                   endpoints_.size(), first_device_);
    return *endpoints_[static_cast<std::size_t>(index)];
  }

 private:
  int first_device_ = 0;
  std::unique_ptr<MpiDriver> driver_;
  std::unique_ptr<Transport> local_;
  std::vector<std::unique_ptr<Endpoint>> endpoints_;
};

}  // namespace

std::unique_ptr<Transport> make_mpi_transport(const Topology& topology, FirstError& first_error,
                                              const MpiTransportOptions& options, int max_plain_bytes) {
  return std::make_unique<MpiTransport>(topology, first_error, options, max_plain_bytes);
}

std::unique_ptr<Transport> make_mpi_transport(const Topology& topology, FirstError& first_error,
                                              const MpiTransportOptions& options) {
  return make_mpi_transport(topology, first_error, options, INT_MAX);
}

}  // namespace slimpipe::comm
