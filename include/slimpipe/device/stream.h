#pragma once
// An ordered queue of device work. Who holds a Stream can issue work on it and nothing else: waiting is the
// device's business (Device::download), so that layers cannot.

namespace slimpipe::device {

/// What is behind it only its backend knows; the CPU backend executes in order at once and keeps nothing.
class Stream {
 public:
  virtual ~Stream() = default;
};

}  // namespace slimpipe::device
