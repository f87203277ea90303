#pragma once
// Everything a session holds from step to step, for comparisons to the bit.

#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "slimpipe/core/check.h"
#include "slimpipe/train/session.h"

#include "support/equality_matrix.h"

namespace slimpipe::test {

struct ParameterState {
  std::vector<float> master;
  std::vector<float> moment1;
  std::vector<float> moment2;
  std::vector<float> gradient;
  std::vector<std::byte> weight;
};

/// By device and parameter: the two copies of a tied embedding are apart.
using SessionState = std::map<std::pair<int, std::string>, ParameterState>;

inline SessionState state_of(train::Session& session) {
  SessionState state;
  std::mutex mutex;
  session.each_device([&](runtime::DeviceContext& context) {
    const auto floats = [&](const Tensor& tensor) {
      std::vector<float> values(tensor.size());
      context.device->download(tensor, values.data());
      return values;
    };
    for (const model::StoredParameter& parameter : context.store->parameters()) {
      ParameterState one{master_of(context, parameter), floats(parameter.moment1), floats(parameter.moment2),
                         floats(parameter.gradient), std::vector<std::byte>(parameter.weight.bytes())};
      context.device->download(parameter.weight, one.weight.data());
      const std::scoped_lock lock(mutex);
      state[{context.index, session.table().entries()[parameter.index].name}] = std::move(one);
    }
  });
  return state;
}

template <typename T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

/// Names what of `a` differs from `b`: masters, moments and weights, and gradients where asked for.
inline std::vector<std::string> differences(const SessionState& a, const SessionState& b,
                                            bool gradients = false) {
  std::vector<std::string> found;
  if (a.size() != b.size()) found.push_back("different numbers of tensors");
  for (const auto& [key, one] : a) {
    const auto& [device, name] = key;
    const auto it = b.find(key);
    if (it == b.end()) {
      found.push_back(fmt::format("device {} lacks {}", device, name));
      continue;
    }
    const ParameterState& other = it->second;
    const std::string place = fmt::format("{} on device {}", name, device);
    const auto check = [&](const char* what, bool same) {
      if (!same) found.push_back(fmt::format("{} of {}", what, place));
    };
    check("master", same_bits(one.master, other.master));
    check("moment1", same_bits(one.moment1, other.moment1));
    check("moment2", same_bits(one.moment2, other.moment2));
    check("weight", same_bits(one.weight, other.weight));
    if (gradients) check("gradient", same_bits(one.gradient, other.gradient));
  }
  return found;
}

/// The state by parameter, whatever device holds it: for layouts that differ.
inline SessionState without_devices(const SessionState& state) {
  SessionState all;
  for (const auto& [key, one] : state) all[{0, key.second}] = one;
  return all;
}

/// What `differences` gives where all bits are the same.
inline std::vector<std::string> nothing() {
  return {};
}

/// Calls change(values) on the master of one parameter, on every device that holds it.
template <typename Change>
void change_master(train::Session& session, const std::string& name, Change change) {
  const std::size_t index = session.table().index_of(name);
  session.each_device([&](runtime::DeviceContext& context) {
    const model::StoredParameter* parameter = context.store->find(index);
    if (parameter == nullptr) return;
    std::vector<float> values = master_of(context, *parameter);
    change(values);
    context.store->write_master(*parameter, 0, values);
  });
}

/// Steps `first` to `first + count - 1` (from 0) on the batches of the equality matrix.
inline std::vector<double> take_steps(train::Session& session, int microbatches, int first, int count) {
  std::vector<double> losses;
  for (int step = first; step < first + count; ++step) {
    losses.push_back(
        session.train_step(matrix_batch(microbatches, step), {.learning_rate = 1e-2, .update = step + 1})
            .loss);
  }
  return losses;
}

}  // namespace slimpipe::test
