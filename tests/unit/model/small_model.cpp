#include "unit/model/small_model.h"

#include <algorithm>

#include "slimpipe/core/random.h"

namespace slimpipe::test {

using device::Scope;

Sample random_sample(std::int64_t length, std::int64_t vocabulary) {
  Sample sample;
  const auto draw = [&](std::uint32_t detail, std::int64_t i) {
    const std::uint64_t word =
        random_u64(3, {RandomStream::Use::kTest, detail}, static_cast<std::uint64_t>(i));
    return static_cast<std::int32_t>(word % static_cast<std::uint64_t>(vocabulary));
  };
  for (std::int64_t i = 0; i < length; ++i) {
    sample.tokens.push_back(draw(1, i));
    sample.targets.push_back(i % 5 == 2 ? -1 : draw(2, i));
  }
  return sample;
}

SmallModel::SmallModel(device::Device& on, const config::ModelConfig& model, DType compute, bool training,
                       std::uint64_t seed, model::Recompute recompute)
    : device(on),
      config(model),
      table(model),
      store(on, table, model, compute, table.stage_entries(0, static_cast<int>(model.layers), true, true),
            training),
      compute_(compute) {
  store.initialise(seed);
  for (int i = 0; i < model.layers; ++i) {
    layers_.emplace_back(model, compute, parallel_, store.layer_weights(i), recompute);
  }
  head_ = std::make_unique<model::OutputHead>(
      model, compute, model::HeadTensors{.norm = store.final_norm_weight(), .output = store.head_weight()});
}

double SmallModel::evaluate(const Sample& sample, int slices) {
  return run(sample, slices, false);
}

double SmallModel::train(const Sample& sample, int slices) {
  store.release_gradients();
  return accumulate(sample, slices);
}

double SmallModel::accumulate(const Sample& sample, int slices) {
  return run(sample, slices, true);
}

Gradients SmallModel::gradients() {
  Gradients result;
  const auto download = [&](const Tensor& t) {
    std::vector<float> values(static_cast<std::size_t>(t.size()));
    device.download(t, values.data());
    return values;
  };
  for (const model::StoredParameter& p : store.parameters()) {
    result[table.entries()[p.index].name] = download(p.gradient);
  }
  if (config.tied_embeddings) {
    std::vector<float>& embedding = result["model.embed_tokens.weight"];
    const std::vector<float> head = download(store.head_gradient());
    for (std::size_t i = 0; i < head.size(); ++i) embedding[i] += head[i];
  }
  return result;
}

Tensor SmallModel::tensor(std::vector<device::Buffer>& owner, Scope scope, DType dtype,
                          std::initializer_list<std::int64_t> dims) {
  const Tensor shape(nullptr, dtype, dims);
  owner.emplace_back(device.arena(), scope, shape.bytes(), "test tensor");
  return {owner.back().data(), dtype, dims};
}

SmallModel::SliceState SmallModel::make_slice(const Sample& sample, int slice, std::int64_t tokens) {
  SliceState state;
  const std::int64_t first = slice * tokens;
  state.ref = {.slice = slice, .first_position = first, .tokens = tokens};
  state.ref.sequence = {.length = static_cast<std::int64_t>(sample.tokens.size()),
                        .valid_tokens = static_cast<std::int64_t>(sample.tokens.size()),
                        .document_starts = sample.document_starts};
  state.tokens = tensor(state.buffers, Scope::kInput, DType::kI32, {tokens});
  state.targets = tensor(state.buffers, Scope::kInput, DType::kI32, {tokens});
  device.upload(sample.tokens.data() + first, state.tokens);
  device.upload(sample.targets.data() + first, state.targets);

  const model::RopeFrequencies rope = model::rope_frequencies(config.rope, config.head_size);
  const std::int64_t half = config.head_size / 2;
  const Tensor inverse = tensor(state.buffers, Scope::kInput, DType::kF64, {half});
  device.upload(rope.inverse.data(), inverse);
  state.ref.rope_cos = tensor(state.buffers, Scope::kInput, DType::kF32, {tokens, half});
  state.ref.rope_sin = tensor(state.buffers, Scope::kInput, DType::kF32, {tokens, half});
  device.operators().rope_table(device.stream(), inverse, first, static_cast<float>(rope.magnitude),
                                state.ref.rope_cos, state.ref.rope_sin);
  state.hidden = tensor(state.buffers, Scope::kTransfer, compute_, {tokens, config.hidden});
  state.saved.resize(layers_.size());
  return state;
}

void SmallModel::forward(std::vector<SliceState>& slices, std::size_t i) {
  const device::ExecutionContext context = execution_context(device);
  SliceState& state = slices[i];
  for (std::size_t l = 0; l < layers_.size(); ++l)
    layers_[l].allocate_saved(context, state.ref, state.saved[l]);
  device.operators().embedding_forward(device.stream(), state.tokens, store.embedding_weight(),
                                       state.saved[0].x);
  for (std::size_t l = 0; l < layers_.size(); ++l) {
    layers_[l].pre_attention(context, state.ref, state.saved[l]);
    std::vector<device::KvBlock> blocks;
    for (std::size_t j = 0; j <= i; ++j) blocks.push_back(slices[j].saved[l].kv);
    layers_[l].attention(context, state.ref, state.saved[l], blocks);
    const Tensor out = l + 1 < layers_.size() ? state.saved[l + 1].x : state.hidden;
    layers_[l].post_attention(context, state.ref, state.saved[l], out);
  }
}

std::vector<SmallModel::KvGradients> SmallModel::allocate_kv_gradients(
    const std::vector<SliceState>& slices) {
  const device::ExecutionContext context = execution_context(device);
  std::vector<KvGradients> result(layers_.size());
  for (std::size_t l = 0; l < layers_.size(); ++l) {
    for (const SliceState& slice : slices) {
      device::Buffer buffer;
      result[l].blocks.push_back(layers_[l].allocate_kv_gradient(context, slice.ref.tokens, buffer));
      result[l].buffers.push_back(std::move(buffer));
    }
  }
  return result;
}

void SmallModel::backward(std::vector<SliceState>& slices, std::size_t i, Tensor d_hidden,
                          std::vector<KvGradients>& kv_gradients) {
  const device::ExecutionContext context = execution_context(device);
  SliceState& state = slices[i];
  std::vector<device::Buffer> owner;
  Tensor d_out = d_hidden;
  for (std::size_t l = layers_.size(); l-- > 0;) {
    model::LayerSaved& saved = state.saved[l];
    model::LayerBackward gradients{.gradients = store.layer_gradients(static_cast<int>(l)), .d_out = d_out};
    layers_[l].post_attention_backward_input(context, state.ref, saved, gradients);
    std::vector<device::KvBlock> blocks;
    for (std::size_t j = 0; j <= i; ++j) blocks.push_back(slices[j].saved[l].kv);
    layers_[l].attention_backward(context, state.ref, saved, gradients, blocks,
                                  std::span(kv_gradients[l].blocks).first(i + 1));
    saved.kv_part.reset();
    const Tensor d_x = tensor(owner, Scope::kWorkspace, compute_, {state.ref.tokens, config.hidden});
    layers_[l].pre_attention_backward_input(context, state.ref, saved, gradients, kv_gradients[l].blocks[i],
                                            d_x);
    kv_gradients[l].buffers[i].reset();
    saved.x_part.reset();
    saved.input_part.reset();
    layers_[l].backward_weight(context, state.ref, saved, gradients);
    saved.weight_part.reset();
    d_out = d_x;
  }
  device.operators().embedding_backward(device.stream(), state.tokens, d_out, store.embedding_gradient());
}

double SmallModel::run(const Sample& sample, int slices, bool backward_too) {
  const auto n = static_cast<std::size_t>(slices);
  const std::int64_t tokens = static_cast<std::int64_t>(sample.tokens.size()) / slices;
  std::vector<SliceState> states;
  for (int i = 0; i < slices; ++i) states.push_back(make_slice(sample, i, tokens));
  for (std::size_t i = 0; i < n; ++i) forward(states, i);
  saved_bytes = device.arena().stats().live[static_cast<std::size_t>(Scope::kSavedActivations)];

  std::vector<KvGradients> kv_gradients;
  if (backward_too) kv_gradients = allocate_kv_gradients(states);
  const auto valid = static_cast<double>(
      std::count_if(sample.targets.begin(), sample.targets.end(), [](std::int32_t t) { return t >= 0; }));
  std::vector<device::Buffer> owner;
  const Tensor loss_sum = tensor(owner, Scope::kInput, DType::kF64, {1});
  device.operators().zero(device.stream(), loss_sum);
  for (std::size_t i = n; i-- > 0;) {
    std::vector<device::Buffer> d_hidden_owner;
    Tensor d_hidden;
    if (backward_too) d_hidden = tensor(d_hidden_owner, Scope::kWorkspace, compute_, {tokens, config.hidden});
    std::optional<model::HeadBackward> head_backward;
    if (backward_too) {
      head_backward = {.d_x = d_hidden,
                       .gradients = {store.final_norm_gradient(), store.head_gradient()},
                       .gradient_scale = static_cast<float>(1 / valid)};
    }
    head_->loss(execution_context(device), states[i].ref, states[i].hidden, states[i].targets, loss_sum,
                head_backward);
    if (backward_too) backward(states, i, d_hidden, kv_gradients);
  }
  double sum = 0;
  device.download(loss_sum, &sum);
  return sum / valid;
}

}  // namespace slimpipe::test
