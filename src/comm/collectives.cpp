#include "slimpipe/comm/collectives.h"

#include <algorithm>
#include <functional>

#include "slimpipe/core/check.h"

namespace slimpipe::comm {
namespace {

std::int64_t bytes_of(std::span<const double> values) {
  return static_cast<std::int64_t>(values.size_bytes());
}

Channel control_channel(int source, int destination) {
  return {.source = source, .destination = destination, .purpose = Purpose::kControl};
}

}  // namespace

Collectives::Collectives(Endpoint& endpoint, int device, std::vector<int> group)
    : endpoint_(endpoint), group_(std::move(group)) {
  const auto own = std::find(group_.begin(), group_.end(), device);
  SLIMPIPE_CHECK(own != group_.end(), "device {} is not a member of its group of {}", device, group_.size());
  rank_ = static_cast<int>(own - group_.begin());
  std::vector<int> sorted = group_;
  std::sort(sorted.begin(), sorted.end());
  SLIMPIPE_CHECK(std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end(),
                 "the group of device {} names a device twice", device);
}

void Collectives::all_reduce_sum(std::span<double> values) {
  const int first = group_.front();
  const int own = group_[static_cast<std::size_t>(rank_)];
  if (own == first) {
    gather_and_sum(values);
    send_to_all(values);
    return;
  }
  endpoint_.wait(endpoint_.post_send(control_channel(own, first), values.data(), bytes_of(values)));
  endpoint_.wait(endpoint_.post_receive(control_channel(first, own), values.data(), bytes_of(values)));
}

void Collectives::barrier() {
  all_reduce_sum({});  // nobody is let go before the first member has heard from everybody
}

void Collectives::gather_and_sum(std::span<double> values) {
  std::vector<double> gathered(values.size() * (group_.size() - 1));  // [member - 1][value]
  std::vector<Ticket> tickets;
  for (std::size_t member = 1; member < group_.size(); ++member) {
    double* const row = gathered.data() + (member - 1) * values.size();
    tickets.push_back(
        endpoint_.post_receive(control_channel(group_[member], group_[0]), row, bytes_of(values)));
  }
  for (std::size_t member = 1; member < group_.size(); ++member) {
    endpoint_.wait(tickets[member - 1]);
    const double* const row = gathered.data() + (member - 1) * values.size();
    std::transform(values.begin(), values.end(), row, values.begin(), std::plus());
  }
}

void Collectives::send_to_all(std::span<const double> values) {
  std::vector<Ticket> tickets;
  for (std::size_t member = 1; member < group_.size(); ++member) {
    tickets.push_back(
        endpoint_.post_send(control_channel(group_[0], group_[member]), values.data(), bytes_of(values)));
  }
  for (const Ticket ticket : tickets) endpoint_.wait(ticket);
}

}  // namespace slimpipe::comm
