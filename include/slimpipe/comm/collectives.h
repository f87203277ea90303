#pragma once
// Small collective operations in a fixed order, over the transport's control channels. Identity at group
// size 1. Every member calls the same operations in the same order; results are bitwise equal everywhere.
// Reductions gather to the first member and come back from it: made for a few numbers a step.

#include <span>
#include <vector>

#include "slimpipe/comm/transport.h"

namespace slimpipe::comm {

class Collectives {
 public:
  /// `group`: device indices in rank order, each once, containing `device`; the same at every member.
  Collectives(Endpoint& endpoint, int device, std::vector<int> group);

  /// values = sum over members, added up in group order.
  void all_reduce_sum(std::span<double> values);
  /// Returns when every member has called it.
  void barrier();
  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return static_cast<int>(group_.size()); }

 private:
  /// On the first member: adds the others' values to its own; gives the sum to them.
  void gather_and_sum(std::span<double> values);
  void send_to_all(std::span<const double> values);

  Endpoint& endpoint_;
  std::vector<int> group_;
  int rank_;
};

}  // namespace slimpipe::comm
