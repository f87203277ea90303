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
  /// values = elementwise maximum; NaN where any member has NaN.
  void all_reduce_max(std::span<double> values);
  /// values of `root` (an index into the group) everywhere.
  void broadcast(std::span<double> values, int root);
  void barrier();
  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return static_cast<int>(group_.size()); }

 private:
  template <typename Combine>
  void reduce_to_all(std::span<double> values, Combine combine);
  template <typename Combine>
  void gather_and_combine(std::span<double> values, Combine combine);

  Endpoint& endpoint_;
  std::vector<int> group_;
  int rank_;
};

}  // namespace slimpipe::comm
