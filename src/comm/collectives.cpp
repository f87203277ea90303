#include "slimpipe/comm/collectives.h"

#include <algorithm>
#include <cmath>

#include "slimpipe/core/check.h"

namespace slimpipe::comm {
namespace {

/// NaN wins over every number, unlike std::max, whose answer depends on the order of its arguments.
double max_or_nan(double a, double b) {
  if (std::isnan(a)) return a;
  if (std::isnan(b)) return b;
  return std::max(a, b);
}

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
  reduce_to_all(values, [](double a, double b) { return a + b; });
}

void Collectives::all_reduce_max(std::span<double> values) {
  reduce_to_all(values, max_or_nan);
}

void Collectives::barrier() {
  reduce_to_all({}, max_or_nan);  // nobody is let go before the first member has heard from everybody
}

void Collectives::broadcast(std::span<double> values, int root) {
  SLIMPIPE_CHECK(root >= 0 && root < size(), "root {} in a group of {}", root, size());
  const int source = group_[static_cast<std::size_t>(root)];
  const int device = group_[static_cast<std::size_t>(rank_)];
  if (rank_ != root) {
    endpoint_.wait(endpoint_.post_receive(control_channel(source, device), values.data(), bytes_of(values)));
    return;
  }
  std::vector<Ticket> tickets;
  for (const int member : group_) {
    if (member == source) continue;
    tickets.push_back(endpoint_.post_send(control_channel(source, member), values.data(), bytes_of(values)));
  }
  for (const Ticket ticket : tickets) endpoint_.wait(ticket);
}

template <typename Combine>
void Collectives::reduce_to_all(std::span<double> values, Combine combine) {
  if (rank_ == 0) {
    gather_and_combine(values, combine);
  } else {
    const Channel to_first = control_channel(group_[static_cast<std::size_t>(rank_)], group_[0]);
    endpoint_.wait(endpoint_.post_send(to_first, values.data(), bytes_of(values)));
  }
  broadcast(values, 0);
}

template <typename Combine>
void Collectives::gather_and_combine(std::span<double> values, Combine combine) {
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
    std::transform(values.begin(), values.end(), row, values.begin(), combine);
  }
}

}  // namespace slimpipe::comm
