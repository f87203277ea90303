#include "comm/short_sleep.h"

#include <sys/prctl.h>

namespace slimpipe::comm {

void allow_short_sleeps() {
  constexpr unsigned long kSlackNanoseconds = 1000;
  prctl(PR_SET_TIMERSLACK, kSlackNanoseconds, 0, 0, 0);  // where refused, sleeps are longer, nothing else
}

}  // namespace slimpipe::comm
