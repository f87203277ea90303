#pragma once
// An ordered queue of device work. The CPU backend executes in order at once, so its stream has no state.

namespace slimpipe::device {

class Stream {
 public:
  virtual ~Stream() = default;
  /// Returns when everything issued so far is done. Only the executor and read-backs call it.
  virtual void synchronize() = 0;
};

}  // namespace slimpipe::device
