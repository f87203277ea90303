#include "io/hash.h"

#include <xxhash.h>

#include "slimpipe/core/check.h"

namespace slimpipe::io {

struct StreamHash::State {
  XXH3_state_t* handle = XXH3_createState();

  State() {
    SLIMPIPE_CHECK(handle != nullptr && XXH3_64bits_reset(handle) == XXH_OK, "no memory for a hash");
  }
  ~State() { XXH3_freeState(handle); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
};

StreamHash::StreamHash() : state_(std::make_unique<State>()) {}
StreamHash::~StreamHash() = default;

void StreamHash::add(std::span<const std::byte> data) {
  if (data.empty()) return;
  SLIMPIPE_CHECK(XXH3_64bits_update(state_->handle, data.data(), data.size()) == XXH_OK, "{} bytes",
                 data.size());
}

std::uint64_t StreamHash::value() const {
  return XXH3_64bits_digest(state_->handle);
}

}  // namespace slimpipe::io
