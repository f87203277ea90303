#include "schedule/list_scheduler.h"

#include <algorithm>
#include <deque>

namespace slimpipe::schedule {
namespace {

class ListScheduler {
 public:
  ListScheduler(const Schedule& placed, const ListRules& rules) : placed_(placed), rules_(rules) {
    const Spec& spec = placed.spec;
    units_ = static_cast<std::size_t>(spec.microbatches) * spec.slices;
    forward_done_.assign(units_ * spec.stages(), false);
    input_done_.assign(units_ * spec.stages(), false);
    for (int device = 0; device < spec.pipeline; ++device) {
      DeviceState& state = devices_.emplace_back();
      state.next_forward.assign(rules.forwards.size(), 0);
      state.next_backward.assign(rules.backwards.size(), 0);
      state.in_flight_limit = rules.in_flight(device);
      state.held_limit = rules.held(device);
    }
    for (const auto& queue : rules.forwards) left_ += queue.size() * spec.pipeline;
    for (const auto& queue : rules.backwards) left_ += 2 * queue.size() * spec.pipeline;
  }

  std::optional<ListSchedule> run() {
    ListSchedule result;
    while (left_ > 0) {
      if (!take_slot()) return std::nullopt;
      ++result.slots;
    }
    for (DeviceState& state : devices_) result.devices.push_back(std::move(state.actions));
    return result;
  }

 private:
  struct DeviceState {
    std::vector<Action> actions;
    std::vector<std::size_t> next_forward;   ///< [queue]
    std::vector<std::size_t> next_backward;  ///< [queue]
    std::deque<Action> weights;              ///< their backwards for inputs are done
    int in_flight_limit = 0;
    int held_limit = 0;
    int in_flight = 0;
    int held = 0;
    int through_first = 0;  ///< forwards of chunk 0 done
    int through_last = 0;   ///< of the last chunk
  };

  /// One slot of every device; what one of them does is seen by the others from the next slot on.
  bool take_slot() {
    std::vector<std::pair<int, Action>> ran;
    for (int device = 0; device < placed_.spec.pipeline; ++device)
      if (const auto action = choose(device)) ran.emplace_back(device, *action);
    for (const auto& [device, action] : ran) finish(device, action);
    return !ran.empty();
  }

  std::optional<Action> choose(int device) {
    DeviceState& state = devices_[device];
    for (std::size_t q = 0; q < rules_.backwards.size(); ++q)
      if (const auto action = head(rules_.backwards[q], state.next_backward[q]);
          action && backward_ready(device, *action)) {
        ++state.next_backward[q];
        return action;
      }
    for (std::size_t q = 0; q < rules_.forwards.size(); ++q)
      if (const auto action = head(rules_.forwards[q], state.next_forward[q]);
          action && forward_ready(device, *action)) {
        ++state.next_forward[q];
        return action;
      }
    if (state.weights.empty()) return std::nullopt;
    const Action action = state.weights.front();
    state.weights.pop_front();
    return action;
  }

  static std::optional<Action> head(const ActionQueue& queue, std::size_t next) {
    return next < queue.size() ? std::optional(queue[next]) : std::nullopt;
  }

  [[nodiscard]] std::size_t index(int stage, const Action& action) const {
    return units_ * stage + static_cast<std::size_t>(action.microbatch) * placed_.spec.slices + action.slice;
  }

  [[nodiscard]] bool forward_ready(int device, const Action& action) const {
    const DeviceState& state = devices_[device];
    const int stage = placed_.stage_of[device][action.chunk];
    if (stage > 0 && !forward_done_[index(stage - 1, action)]) return false;
    if (!placed_.training) return true;
    const int reserve = action.chunk > 0 || placed_.spec.virtual_stages == 1 ? 0
                        : rules_.reserve == ListRules::kForLaterChunks
                            ? state.through_first - state.through_last + 1
                            : rules_.reserve;
    return state.in_flight < state.in_flight_limit && state.held + 1 <= state.held_limit - reserve;
  }

  [[nodiscard]] bool backward_ready(int device, const Action& action) const {
    const int stage = placed_.stage_of[device][action.chunk];
    const bool last = stage == placed_.spec.stages() - 1;
    return forward_done_[index(stage, action)] && (last || input_done_[index(stage + 1, action)]);
  }

  void finish(int device, const Action& action) {
    DeviceState& state = devices_[device];
    const int stage = placed_.stage_of[device][action.chunk];
    state.actions.push_back(action);
    --left_;
    switch (action.kind) {
      case ActionKind::kForward:
        forward_done_[index(stage, action)] = true;
        ++state.in_flight;
        ++state.held;
        state.through_first += action.chunk == 0 ? 1 : 0;
        state.through_last += action.chunk == placed_.spec.virtual_stages - 1 ? 1 : 0;
        break;
      case ActionKind::kBackward:
      case ActionKind::kBackwardInput: {
        input_done_[index(stage, action)] = true;
        --state.in_flight;
        Action weights = action;
        weights.kind = ActionKind::kBackwardWeight;
        state.weights.push_back(weights);
        break;
      }
      case ActionKind::kBackwardWeight:
        --state.held;
        break;
      case ActionKind::kHelp:  // planned afterwards, for a whole schedule
        break;
    }
  }

  const Schedule& placed_;
  const ListRules& rules_;
  std::size_t units_ = 0;           ///< slices of all microbatches
  std::size_t left_ = 0;            ///< actions of all devices
  std::vector<bool> forward_done_;  ///< [stage · units + unit]
  std::vector<bool> input_done_;
  std::vector<DeviceState> devices_;
};

}  // namespace

std::optional<ListSchedule> list_schedule(const Schedule& placed, const ListRules& rules) {
  return ListScheduler(placed, rules).run();
}

}  // namespace slimpipe::schedule
