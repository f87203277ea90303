#include "comm/in_process_transport.h"

#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <utility>
#include <vector>

#include "slimpipe/core/check.h"

#include "comm/posting.h"
#include "comm/tickets.h"

namespace slimpipe::comm {
namespace {

/// One message, shared by its two ends. Guarded by the exchange's mutex, except that the thread which made
/// it kCopying reads the buffers' addresses and sizes without it: they no longer change then.
struct Message {
  enum class State : std::uint8_t { kUnmatched, kCopying, kDone, kSizesDisagree };

  Channel channel;
  std::int64_t number = 0;
  Direction first_posted = Direction::kSend;
  const void* source = nullptr;
  void* destination = nullptr;
  std::int64_t sent_bytes = 0;
  std::int64_t expected_bytes = 0;
  State state = State::kUnmatched;
  Moment settled_at;

  [[nodiscard]] bool settled() const { return state == State::kDone || state == State::kSizesDisagree; }
};
using MessagePointer = std::shared_ptr<Message>;

/// Pairs the k-th send with the k-th receive of each channel. Its one mutex is held for a look-up, never
/// for a copy: whichever end posts second copies, on its own thread, so channels copy in parallel.
class Exchange {
 public:
  Exchange(int first_device, int devices, const FirstError& first_error)
      : first_device_(first_device), changed_(static_cast<std::size_t>(devices)), stop_(first_error) {}

  /// `fill_end` sets the poster's buffer and size in the message, which is new or the other end's.
  template <typename FillEnd>
  MessagePointer post(Direction direction, const Channel& channel, std::int64_t number, FillEnd fill_end) {
    MessagePointer message;
    {
      const std::scoped_lock lock(mutex_);
      auto& queue = unmatched_[channel];
      if (queue.empty() || queue.front()->first_posted == direction) {
        message = std::make_shared<Message>();
        message->channel = channel;
        message->number = number;
        message->first_posted = direction;
        fill_end(*message);
        queue.push_back(message);
        return message;
      }
      message = std::move(queue.front());
      queue.pop_front();
      fill_end(*message);
      message->state = Message::State::kCopying;
    }
    settle(*message, direction == Direction::kSend ? channel.destination : channel.source);
    return message;
  }

  /// Blocks `device` until the message is settled or the run stops; returns the state found.
  Message::State wait(const Message& message, int device) {
    std::unique_lock lock(mutex_);
    changed(device).wait(lock, [&] { return message.settled() || stop_.stopped(); });
    return message.state;
  }

  /// Afterwards no other thread touches the buffer of `device` in this message.
  void withdraw(const MessagePointer& message, int device) noexcept {
    std::unique_lock lock(mutex_);
    if (message->state == Message::State::kUnmatched) std::erase(unmatched_[message->channel], message);
    changed(device).wait(lock, [&] { return message->state != Message::State::kCopying; });
  }

  void wake_all() {
    // Whoever found the run not stopped holds the mutex until it sleeps: past this lock it can be woken.
    { const std::scoped_lock lock(mutex_); }
    for (auto& condition : changed_) condition.notify_all();
  }

 private:
  void settle(Message& message, int first_poster) {
    const bool agree = message.sent_bytes == message.expected_bytes;
    if (agree && message.sent_bytes > 0) {
      std::memcpy(message.destination, message.source, static_cast<std::size_t>(message.sent_bytes));
    }
    {
      const std::scoped_lock lock(mutex_);
      message.state = agree ? Message::State::kDone : Message::State::kSizesDisagree;
      message.settled_at = std::chrono::steady_clock::now();
    }
    changed(first_poster).notify_all();
  }

  std::condition_variable& changed(int device) {
    return changed_[static_cast<std::size_t>(device - first_device_)];
  }

  int first_device_;
  std::mutex mutex_;
  /// Messages with one end posted, in order; at any time all of a queue have posted the same end.
  std::map<Channel, std::deque<MessagePointer>> unmatched_;
  std::deque<std::condition_variable> changed_;  ///< by device: one of its messages left kUnmatched
  StopToken stop_;
};

class InProcessEndpoint final : public Endpoint {
 public:
  InProcessEndpoint(Exchange& exchange, PostLedger ledger)
      : exchange_(exchange), ledger_(std::move(ledger)) {}

  Ticket post_send(const Channel& channel, const void* data, std::int64_t bytes) override {
    return post(Direction::kSend, channel, data, bytes, [=](Message& message) {
      message.source = data;
      message.sent_bytes = bytes;
    });
  }

  Ticket post_receive(const Channel& channel, void* data, std::int64_t bytes) override {
    return post(Direction::kReceive, channel, data, bytes, [=](Message& message) {
      message.destination = data;
      message.expected_bytes = bytes;
    });
  }

  Moment wait(Ticket ticket) override {
    const MessagePointer message = tickets_.at(ticket);
    const Message::State state = exchange_.wait(*message, ledger_.device());
    if (state == Message::State::kDone) {
      tickets_.erase(ticket);
      return message->settled_at;
    }
    abandon();
    if (state == Message::State::kSizesDisagree) {
      throw Error(
          size_disagreement(message->channel, message->number, message->sent_bytes, message->expected_bytes));
    }
    throw_stopped(message->channel, message->number);
  }

  void progress() override {}  // the second poster has copied already

  void abandon() noexcept override {
    tickets_.close([this](const MessagePointer& message) { exchange_.withdraw(message, ledger_.device()); });
  }

 private:
  template <typename FillEnd>
  Ticket post(Direction direction, const Channel& channel, const void* data, std::int64_t bytes,
              FillEnd fill_end) {
    tickets_.check_open();
    const std::int64_t number = ledger_.enter(direction, channel, data, bytes);
    return tickets_.add(exchange_.post(direction, channel, number, fill_end));
  }

  Exchange& exchange_;
  PostLedger ledger_;
  TicketTable<Message> tickets_;
};

class InProcessTransport final : public Transport {
 public:
  InProcessTransport(int first_device, int devices, FirstError& first_error)
      : first_device_(first_device),
        exchange_(std::make_shared<Exchange>(first_device, devices, first_error)) {
    for (int i = 0; i < devices; ++i) {
      endpoints_.push_back(std::make_unique<InProcessEndpoint>(
          *exchange_, PostLedger(first_device + i, first_device, devices)));
    }
    // The listener may outlive the transport.
    first_error.on_stop([watched = std::weak_ptr<Exchange>(exchange_)] {
      if (const auto exchange = watched.lock()) exchange->wake_all();
    });
  }

  Endpoint& endpoint(int device) override {
    const int index = device - first_device_;
    SLIMPIPE_CHECK(index >= 0 && index < static_cast<int>(endpoints_.size()),
                   "device {} is not one of the {} devices from {}", device, endpoints_.size(),
                   first_device_);
    return *endpoints_[static_cast<std::size_t>(index)];
  }

 private:
  int first_device_;
  std::shared_ptr<Exchange> exchange_;
  std::vector<std::unique_ptr<InProcessEndpoint>> endpoints_;
};

}  // namespace

std::unique_ptr<Transport> make_in_process_transport(int first_device, int devices, FirstError& first_error) {
  SLIMPIPE_CHECK(devices >= 1, "a transport for {} devices", devices);
  return std::make_unique<InProcessTransport>(first_device, devices, first_error);
}

std::unique_ptr<Transport> make_in_process_transport(int devices, FirstError& first_error) {
  return make_in_process_transport(0, devices, first_error);
}

}  // namespace slimpipe::comm
