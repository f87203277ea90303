// The steps of StageRunner that exchange attention context, and their messages.

#include "slimpipe/core/check.h"
#include "slimpipe/runtime/stage_runner.h"

#include "runtime/key_ranges.h"
#include "runtime/stage_state.h"

namespace slimpipe::runtime {

using schedule::Help;
using schedule::Phase;

namespace {

bool is_forward(const Help& help) {
  return help.action.kind == schedule::ActionKind::kForward;
}

KeyRange range_of(const Help& help) {
  return {help.first_key, help.first_key + help.keys};
}

}  // namespace

void StageRunner::begin_exchange(const Program& program) {
  exchange_ = std::make_unique<ExchangeState>();
  exchange_->helps.resize(program.helps.size());
  exchange_->shape = {.tokens = slice_tokens_,
                      .heads = model_.heads,
                      .kv_heads = model_.kv_heads,
                      .head_size = model_.head_size,
                      .compute = compute_};
}

void StageRunner::run_exchange(const Context& context, const Step& step) {
  switch (step.phase) {
    case Phase::kGatherKeys:
      return gather_keys(context, step);
    case Phase::kGatherQuery:
      return gather_query(context, step);
    case Phase::kHelpAttention:
    case Phase::kHelpAttentionBackward:
      return help_attention(context, step);
    case Phase::kMergeAttention:
      return merge_attention(context, step);
    case Phase::kMergeGradients:
      return merge_gradients(context, step);
    default:
      throw_error("\"{}\" is not a compute step", describe(step));
  }
}

LayerKv& StageRunner::layer_kv(const Step& step) {
  return chunks_[step.action.chunk].microbatches[step.action.microbatch].layers[step.layer];
}

std::vector<BlockRows> StageRunner::kept_rows(std::span<const device::KvBlock> blocks) const {
  std::vector<KeyRange> given;
  for (const int help : exchange_->given) given.push_back(range_of(program_->helps[help]));
  const KeyRange all{0, blocks.back().first_position + blocks.back().k.dim(0)};
  std::vector<BlockRows> rows;
  for (const KeyRange& range : without(all, std::move(given)))
    std::ranges::copy(rows_of(blocks, range), std::back_inserter(rows));
  return rows;
}

void StageRunner::gather_keys(const Context& context, const Step& step) {
  const Help& help = program_->helps[step.help];
  const LayerKv& kv = layer_kv(step);
  model::KeysMessage& keys = exchange_->helps[step.help].keys;
  keys = model::allocate_keys(context.arena, exchange_->shape, help.keys);
  std::int64_t row = 0;
  for (const BlockRows& rows : rows_of(kv.blocks, range_of(help))) {
    const device::KvBlock part = part_of(kv.blocks[rows.index], rows);
    const std::int64_t end = row + rows.end - rows.begin;
    context.operators.copy(context.stream, part.k, keys.k.rows(row, end));
    context.operators.copy(context.stream, part.v, keys.v.rows(row, end));
    row = end;
  }
}

void StageRunner::gather_query(const Context& context, const Step& step) {
  SliceState& slice = state(step.action);
  const model::LayerSaved& saved = slice.layers[step.layer];
  model::LayerBackward& backward = slice.backward[step.layer];
  chunks_[step.action.chunk].layers[step.layer].attention_delta(context, slice_ref(context, step.action),
                                                                saved, backward);
  model::QueryMessage& query = exchange_->query;
  query = model::allocate_query(context.arena, exchange_->shape, false);
  context.operators.copy(context.stream, saved.q, query.q);
  context.operators.copy(context.stream, backward.d_o, query.d_o);
  context.operators.copy(context.stream, saved.lse, query.lse);
  context.operators.copy(context.stream, backward.delta, query.delta);
}

void StageRunner::help_attention(const Context& context, const Step& step) {
  const Help& help = program_->helps[step.help];
  HelpState& state = exchange_->helps[step.help];
  state.result = model::allocate_result(context.arena, exchange_->shape, is_forward(help), help.keys);
  const model::HelpPositions at{.query_position = help.action.slice * slice_tokens_,
                                .first_key = help.first_key};
  if (is_forward(help))
    model::help_attention(context, at, state.keys, state.query, state.result);
  else
    model::help_attention_backward(context, at, state.keys, state.query, state.result);
  state.keys = {};
  state.query = {};
}

void StageRunner::merge_attention(const Context& context, const Step& step) {
  const model::LayerSaved& saved = state(step.action).layers[step.layer];
  model::ResultMessage& result = exchange_->helps[step.help].result;
  context.operators.merge_attention(context.stream, result.o, result.lse, saved.o, saved.lse);
  result = {};
  std::erase(exchange_->given, step.help);
}

void StageRunner::merge_gradients(const Context& context, const Step& step) {
  const LayerKv& kv = layer_kv(step);
  model::ResultMessage& result = exchange_->helps[step.help].result;
  const auto add = [&](const Tensor& part, const Tensor& total) {
    context.operators.add(context.stream, total, part, total);
  };
  add(result.dq, state(step.action).backward[step.layer].dq);
  std::int64_t row = 0;
  for (const BlockRows& rows : rows_of(kv.blocks, range_of(program_->helps[step.help]))) {
    const device::KvGradientBlock total = part_of(kv.gradients[rows.index], rows);
    const std::int64_t end = row + rows.end - rows.begin;
    add(result.dk.rows(row, end), total.dk);
    add(result.dv.rows(row, end), total.dv);
    row = end;
  }
  result = {};
  std::erase(exchange_->given, step.help);
}

std::span<std::byte> StageRunner::exchange_message(const Step& step, const Transfer& transfer) {
  const Help& help = program_->helps[step.help];
  HelpState& state = exchange_->helps[step.help];
  const model::AttentionShape& shape = exchange_->shape;
  device::Arena& arena = device_.arena();
  const device::Buffer* buffer = nullptr;
  switch (step.phase) {
    case Phase::kReceiveKeys:
      state.keys = model::allocate_keys(arena, shape, help.keys);
      [[fallthrough]];
    case Phase::kSendKeys:
      buffer = &state.keys.part;
      break;
    case Phase::kReceiveQuery:
      state.query = model::allocate_query(arena, shape, is_forward(help));
      buffer = &state.query.part;
      break;
    case Phase::kSendQuery:
      return query_to_send(step, transfer);
    case Phase::kReceiveResult:
      state.result = model::allocate_result(arena, shape, is_forward(help), help.keys);
      [[fallthrough]];
    case Phase::kSendResult:
      buffer = &state.result.part;
      break;
    default:
      throw_error("phase {} sends no message", schedule::name_of(step.phase));
  }
  SLIMPIPE_CHECK(*buffer && buffer->bytes() == transfer.bytes,
                 "\"{}\": the buffer has {} bytes, the message {}", describe(step), buffer->bytes(),
                 transfer.bytes);
  return {static_cast<std::byte*>(buffer->data()), static_cast<std::size_t>(transfer.bytes)};
}

std::span<std::byte> StageRunner::query_to_send(const Step& step, const Transfer& transfer) {
  exchange_->given.push_back(step.help);
  const auto bytes = static_cast<std::size_t>(transfer.bytes);
  if (is_forward(program_->helps[step.help])) {
    // From where it is saved, with what follows it up to the next multiple of the alignment.
    const Tensor& q = state(step.action).layers[step.layer].q;
    SLIMPIPE_CHECK(q.bytes() <= transfer.bytes, "Q has {} bytes, the message {}", q.bytes(), transfer.bytes);
    return {static_cast<std::byte*>(q.data()), bytes};
  }
  ++exchange_->query_sends;
  return {static_cast<std::byte*>(exchange_->query.part.data()), bytes};
}

void StageRunner::exchange_message_done(const Step& step) {
  HelpState& state = exchange_->helps[step.help];
  switch (step.phase) {
    case Phase::kSendKeys:
      state.keys = {};
      return;
    case Phase::kSendQuery:
      if (exchange_->query_sends > 0 && --exchange_->query_sends == 0) exchange_->query = {};
      return;
    case Phase::kSendResult:
      state.result = {};
      return;
    default:  // received: the next step's
      return;
  }
}

}  // namespace slimpipe::runtime
