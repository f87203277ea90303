#pragma once
// The messages that a device has posted and not yet waited for. Used by the device's thread alone.

#include <memory>
#include <unordered_map>
#include <utility>

#include "slimpipe/comm/transport.h"
#include "slimpipe/core/check.h"

namespace slimpipe::comm {

template <typename Message>
class TicketTable {
 public:
  /// Throws Stopped where the endpoint was abandoned: the device has failed, and this is not the cause.
  void check_open() const {
    if (closed_) throw Stopped("a message was posted by a device that has given up its messages");
  }

  Ticket add(std::shared_ptr<Message> message) {
    outstanding_.emplace(++last_, std::move(message));
    return last_;
  }

  [[nodiscard]] const std::shared_ptr<Message>& at(Ticket ticket) const {
    const auto found = outstanding_.find(ticket);
    SLIMPIPE_CHECK(found != outstanding_.end(), "ticket {} was never given, waited for before, or given up",
                   ticket);
    return found->second;
  }

  void erase(Ticket ticket) { outstanding_.erase(ticket); }

  /// Calls give_up(message) for each that is left; nothing can be added afterwards.
  template <typename GiveUp>
  void close(GiveUp give_up) {
    closed_ = true;
    for (const auto& [ticket, message] : outstanding_) give_up(message);
    outstanding_.clear();
  }

 private:
  std::unordered_map<Ticket, std::shared_ptr<Message>> outstanding_;
  Ticket last_ = 0;
  bool closed_ = false;
};

}  // namespace slimpipe::comm
