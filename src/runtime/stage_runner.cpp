#include "slimpipe/runtime/stage_runner.h"

#include <algorithm>
#include <array>

#include "slimpipe/core/check.h"

#include "runtime/key_ranges.h"
#include "runtime/stage_state.h"

namespace slimpipe::runtime {

using device::Buffer;
using device::Scope;
using schedule::Phase;

StageRunner::StageRunner(device::Device& device, model::ParameterStore& store,
                         const config::ModelConfig& model, DType compute, model::Recompute recompute,
                         std::int64_t sequence_length, std::vector<ChunkPlacement> chunks)
    : device_(device),
      store_(store),
      model_(model),
      compute_(compute),
      sequence_length_(sequence_length),
      placements_(std::move(chunks)) {
  for (const ChunkPlacement& placement : placements_) {
    Chunk& chunk = chunks_.emplace_back();
    chunk.placement = placement;
    for (int l = placement.first_layer; l < placement.first_layer + placement.layers; ++l) {
      chunk.layers.emplace_back(model, compute, parallel_, store.layer_weights(l), recompute);
    }
    if (placement.last()) {
      chunk.head.emplace(model, compute, model::HeadTensors{store.final_norm_weight(), store.head_weight()});
    }
  }
}

StageRunner::~StageRunner() = default;

void StageRunner::begin(const Program& program, const StepTokens& tokens) {
  program_ = &program;
  gradient_scale_ = static_cast<float>(tokens.gradient_scale);
  const int m = program.spec.microbatches;
  const int n = program.spec.slices;
  const std::int64_t slice_tokens = sequence_length_ / n;
  SLIMPIPE_CHECK(slice_tokens * n == sequence_length_, "sequence {} in {} slices", sequence_length_, n);
  if (slice_tokens != slice_tokens_) {
    slice_tokens_ = slice_tokens;
    allocate_rope_tables();
  }
  for (Chunk& chunk : chunks_) {
    chunk.slices.clear();
    chunk.slices.resize(static_cast<std::size_t>(m) * n);
    chunk.microbatches.clear();
    chunk.microbatches.resize(m);
    for (MicrobatchState& microbatch : chunk.microbatches) microbatch.layers.resize(chunk.layers.size());
  }
  SLIMPIPE_CHECK(std::ssize(tokens.valid_tokens) == m, "{} counts of valid tokens for {} microbatches",
                 tokens.valid_tokens.size(), m);
  valid_tokens_ = tokens.valid_tokens;
  upload_tokens(tokens.inputs, inputs_, "input tokens");
  upload_tokens(tokens.targets, targets_, "target tokens");
  begin_exchange(program);
  losses_.reset();
  losses_ = Buffer(device_.arena(), Scope::kInput, Tensor(nullptr, DType::kF64, {m, n}), "losses");
  device_.operators().zero(device_.stream(), Tensor(losses_.data(), DType::kF64, {std::int64_t{m} * n}));
}

void StageRunner::allocate_rope_tables() {
  const std::int64_t half = model_.head_size / 2;
  const std::int64_t table_bytes = slice_tokens_ * half * size_of(DType::kF32);
  const std::int64_t frequency_bytes = (half * 8 + 63) / 64 * 64;
  rope_buffer_.reset();
  const Tensor frequencies_shape(nullptr, DType::kF64, {half});
  const Tensor table_shape(nullptr, DType::kF32, {slice_tokens_, half});
  rope_buffer_ = Buffer(device_.arena(), Scope::kInput, frequency_bytes + 2 * table_bytes, "rope tables",
                        std::array{frequencies_shape, table_shape, table_shape});
  auto* base = static_cast<std::byte*>(rope_buffer_.data());
  inverse_frequency_ = Tensor(base, DType::kF64, {half});
  rope_cos_ = Tensor(base + frequency_bytes, DType::kF32, {slice_tokens_, half});
  rope_sin_ = Tensor(base + frequency_bytes + table_bytes, DType::kF32, {slice_tokens_, half});
  rope_slice_ = -1;
  const model::RopeFrequencies frequencies = model::rope_frequencies(model_.rope, model_.head_size);
  rope_magnitude_ = frequencies.magnitude;
  device_.upload(frequencies.inverse.data(), inverse_frequency_);
}

void StageRunner::upload_tokens(const std::vector<std::span<const std::int32_t>>& rows, Buffer& buffer,
                                const char* name) {
  buffer.reset();
  if (rows.empty()) return;
  SLIMPIPE_CHECK(static_cast<int>(rows.size()) == program_->spec.microbatches,
                 "{} rows of {} for {} microbatches", rows.size(), name, program_->spec.microbatches);
  const Tensor shape(nullptr, DType::kI32, {std::ssize(rows), sequence_length_});
  buffer = Buffer(device_.arena(), Scope::kInput, shape, name);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    SLIMPIPE_CHECK(std::ssize(rows[i]) == sequence_length_, "{} of microbatch {}: {} tokens, not {}", name, i,
                   rows[i].size(), sequence_length_);
    device_.upload(rows[i].data(), token_row(buffer, static_cast<int>(i), 0, sequence_length_));
  }
}

Tensor StageRunner::token_row(const Buffer& buffer, int microbatch, std::int64_t first,
                              std::int64_t count) const {
  auto* base = static_cast<std::int32_t*>(buffer.data());
  return {base + microbatch * sequence_length_ + first, DType::kI32, {count}};
}

std::vector<double> StageRunner::losses() {
  const std::int64_t count = std::int64_t{program_->spec.microbatches} * program_->spec.slices;
  std::vector<double> values(static_cast<std::size_t>(count));
  device_.download(Tensor(losses_.data(), DType::kF64, {count}), values.data());
  return values;
}

void StageRunner::check_nothing_left() const {
  std::string left;
  for (const Scope scope : {Scope::kSavedActivations, Scope::kDeferred, Scope::kKvGradients, Scope::kExchange,
                            Scope::kTransfer, Scope::kWorkspace}) {
    for (const std::string& name : device_.arena().live(scope)) left += "\n  " + name;
  }
  SLIMPIPE_CHECK(left.empty(), "device {} still holds memory of the step:{}", device_.index(), left);
}

model::SliceRef StageRunner::slice_ref(const Context& context, const schedule::Action& action) {
  if (rope_slice_ != action.slice) {
    context.operators.rope_table(context.stream, inverse_frequency_, action.slice * slice_tokens_,
                                 static_cast<float>(rope_magnitude_), rope_cos_, rope_sin_);
    rope_slice_ = action.slice;
  }
  return {.microbatch = action.microbatch,
          .slice = action.slice,
          .first_position = action.slice * slice_tokens_,
          .tokens = slice_tokens_,
          .sequence = {.length = sequence_length_,
                       .valid_tokens = valid_tokens_[action.microbatch],
                       .document_starts = {}},
          .rope_cos = rope_cos_,
          .rope_sin = rope_sin_};
}

Tensor StageRunner::hidden_tensor(void* data) const {
  return {data, compute_, {slice_tokens_, model_.hidden}};
}

StageRunner::SliceState& StageRunner::state(const schedule::Action& action) {
  const std::size_t index =
      static_cast<std::size_t>(action.microbatch) * program_->spec.slices + action.slice;
  SliceState& slice = chunks_[action.chunk].slices[index];
  const bool forward = action.kind == schedule::ActionKind::kForward;
  if (forward && slice.layers.empty()) slice.layers.resize(chunks_[action.chunk].layers.size());
  return slice;
}

StageRunner::SliceState& StageRunner::state_at(int stage, const schedule::Action& action) {
  const auto holder = std::ranges::find(placements_, stage, &ChunkPlacement::stage);
  SLIMPIPE_CHECK(holder != placements_.end(), "device {} does not hold stage {}", device_.index(), stage);
  schedule::Action there = action;
  there.chunk = static_cast<int>(holder - placements_.begin());
  return state(there);
}

std::span<std::byte> StageRunner::message(const Step& step, const Transfer& transfer) {
  if (step.phase == Phase::kCombineTiedGradients) return tied_message(step, transfer);
  if (schedule::is_exchange(step.phase)) return exchange_message(step, transfer);
  SliceState& slice = state(step.action);
  Buffer* buffer = nullptr;
  switch (step.phase) {
    case Phase::kReceiveActivation:
      buffer = &slice.received;
      break;
    case Phase::kReceiveGradient:
      buffer = &slice.received_gradient;
      break;
    case Phase::kSendActivation:
      buffer = &slice.output;
      break;
    case Phase::kSendGradient:
      buffer = &slice.input_gradient;
      break;
    default:
      throw_error("phase {} sends no message", schedule::name_of(step.phase));
  }
  if (step.kind == StepKind::kPostReceive) {
    *buffer = Buffer(device_.arena(), Scope::kTransfer, hidden_tensor(nullptr), "received message");
  }
  SLIMPIPE_CHECK(*buffer && buffer->bytes() == transfer.bytes,
                 "\"{}\": the buffer has {} bytes, the message {}", describe(step), buffer->bytes(),
                 transfer.bytes);
  return {static_cast<std::byte*>(buffer->data()), static_cast<std::size_t>(transfer.bytes)};
}

std::span<std::byte> StageRunner::tied_message(const Step& step, const Transfer& transfer) {
  if (step.kind == StepKind::kPostReceive) {
    const Tensor shape(nullptr, DType::kF32, {model_.vocabulary, model_.hidden});
    tied_received_ = Buffer(device_.arena(), Scope::kTransfer, shape, "gradient of the tied embedding");
    SLIMPIPE_CHECK(tied_received_.bytes() == transfer.bytes, "tied gradient of {} bytes, message of {}",
                   tied_received_.bytes(), transfer.bytes);
    return {static_cast<std::byte*>(tied_received_.data()), static_cast<std::size_t>(transfer.bytes)};
  }
  const Tensor own = holds_first_stage() ? store_.embedding_gradient() : store_.head_gradient();
  SLIMPIPE_CHECK(own.bytes() == transfer.bytes, "tied gradient of {} bytes, message of {}", own.bytes(),
                 transfer.bytes);
  return {static_cast<std::byte*>(own.data()), static_cast<std::size_t>(transfer.bytes)};
}

void StageRunner::message_done(const Step& step, const Transfer&) {
  if (step.phase == Phase::kCombineTiedGradients) return;
  if (schedule::is_exchange(step.phase)) return exchange_message_done(step);
  SliceState& slice = state(step.action);
  switch (step.phase) {
    case Phase::kReceiveActivation:
      take_input(slice, std::move(slice.received));
      break;
    case Phase::kReceiveGradient:
      slice.gradient = std::move(slice.received_gradient);
      break;
    case Phase::kSendActivation:
      slice.output.reset();
      break;
    case Phase::kSendGradient:
      slice.input_gradient.reset();
      break;
    default:
      throw_error("phase {} has no message", schedule::name_of(step.phase));
  }
}

void StageRunner::take_input(SliceState& slice, Buffer hidden) {
  hidden.rescope(Scope::kSavedActivations);
  model::LayerSaved& saved = slice.layers.front();
  saved.x_part = std::move(hidden);
  saved.x = hidden_tensor(saved.x_part.data());
}

void StageRunner::combine_tied_gradients(const Context& context) {
  device::Operators& ops = context.operators;
  const Tensor total = store_.embedding_gradient();
  if (!tied_received_) {  // both uses are on this device
    ops.add(context.stream, total, store_.head_gradient(), total);
    return;
  }
  const Tensor received(tied_received_.data(), DType::kF32, {total.dim(0), total.dim(1)});
  // Embedding plus head on both stages: addition of two numbers commutes, so both get the same bits.
  ops.add(context.stream, holds_first_stage() ? total : store_.head_gradient(), received, total);
  tied_received_.reset();
}

bool StageRunner::holds_first_stage() const {
  return std::ranges::any_of(placements_, &ChunkPlacement::first);
}

}  // namespace slimpipe::runtime
