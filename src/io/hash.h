#pragma once
// xxh3-64 of bytes that come in pieces.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace slimpipe::io {

class StreamHash {
 public:
  StreamHash();
  ~StreamHash();
  StreamHash(const StreamHash&) = delete;
  StreamHash& operator=(const StreamHash&) = delete;

  void add(std::span<const std::byte> data);
  /// Of everything added so far.
  [[nodiscard]] std::uint64_t value() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace slimpipe::io
