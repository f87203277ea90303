#pragma once
// A step runner that computes nothing.

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "slimpipe/core/check.h"
#include "slimpipe/runtime/step_runner.h"

namespace slimpipe::test {

/// Keeps a buffer a message, stamps what it sends, checks what it receives, and notes what it does.
class FakeRunner final : public runtime::StepRunner {
 public:
  /// Called in each step with the step's index in the program; what it throws is the step's failure.
  using InStep = std::function<void(int index, const runtime::Step&)>;
  explicit FakeRunner(int device, InStep in_step = {}) : device_(device), in_step_(std::move(in_step)) {}

  void begin(const runtime::Program&, const runtime::StepTokens&) override {}
  void run(const runtime::Step& step, device::Stream& stream) override {
    enter(step);
    done_.push_back(describe(step));
    streams_.insert(&stream);
  }
  std::span<std::byte> message(const runtime::Step& step, const runtime::Transfer& transfer) override {
    enter(step);
    std::vector<std::byte>& buffer = buffers_[&transfer];
    if (!buffer.empty()) throw Error("a message is posted twice");
    const bool send = step.kind == runtime::StepKind::kPostSend;
    buffer.assign(static_cast<std::size_t>(transfer.bytes), send ? std::byte(device_ + 1) : std::byte(0));
    return buffer;
  }
  void message_done(const runtime::Step& step, const runtime::Transfer& transfer) override {
    enter(step);
    const std::vector<std::byte>& buffer = buffers_.at(&transfer);
    const auto expected = std::byte(transfer.channel.source + 1);
    if (!std::ranges::all_of(buffer, [&](std::byte b) { return b == expected; }))
      throw Error("a message is not what its sender wrote");
    buffers_.erase(&transfer);
  }
  [[nodiscard]] std::vector<double> losses() override { return {}; }
  void check_nothing_left() const override {
    SLIMPIPE_CHECK(buffers_.empty(), "{} messages of device {} are not done", buffers_.size(), device_);
  }
  [[nodiscard]] const std::vector<std::string>& done() const { return done_; }
  [[nodiscard]] const std::set<device::Stream*>& streams() const { return streams_; }

 private:
  /// Every step calls the runner once.
  void enter(const runtime::Step& step) {
    const int index = calls_++;
    if (in_step_) in_step_(index, step);
  }

  int device_;
  InStep in_step_;
  int calls_ = 0;
  std::vector<std::string> done_;
  std::set<device::Stream*> streams_;
  std::map<const runtime::Transfer*, std::vector<std::byte>> buffers_;
};

}  // namespace slimpipe::test
