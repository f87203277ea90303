#include "runtime/purpose.h"

#include "slimpipe/core/check.h"

namespace slimpipe::runtime {

comm::Purpose purpose_of(schedule::Payload payload) {
  switch (payload) {
    case schedule::Payload::kActivation:
      return comm::Purpose::kActivation;
    case schedule::Payload::kGradient:
      return comm::Purpose::kGradient;
    case schedule::Payload::kExchangeKeys:
      return comm::Purpose::kExchangeKeys;
    case schedule::Payload::kExchangeQuery:
      return comm::Purpose::kExchangeQuery;
    case schedule::Payload::kExchangeResult:
      return comm::Purpose::kExchangeResult;
  }
  throw_error("payload {} has no purpose", static_cast<int>(payload));
}

const char* content_of(comm::Purpose purpose) {
  switch (purpose) {
    case comm::Purpose::kActivation:
      return "hidden states";
    case comm::Purpose::kGradient:
      return "gradient of the hidden states";
    case comm::Purpose::kTiedGradient:
      return "gradient of the tied embedding";
    case comm::Purpose::kControl:
      return "control data";
    case comm::Purpose::kExchangeKeys:
      return "keys and values";
    case comm::Purpose::kExchangeQuery:
      return "queries";
    case comm::Purpose::kExchangeResult:
      return "partial attention";
  }
  return "?";
}

}  // namespace slimpipe::runtime
