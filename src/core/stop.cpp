#include "slimpipe/core/stop.h"

#include "slimpipe/core/check.h"

namespace slimpipe {
namespace {

std::string message_of(const std::exception_ptr& exception) {
  try {
    std::rethrow_exception(exception);
  } catch (const std::exception& e) {
    return cause_of(e);
  } catch (...) {
    return "an exception of unknown type";
  }
}

}  // namespace

bool FirstError::set(std::exception_ptr exception, FailureSite site) noexcept {
  std::vector<std::function<void()>> wake;
  {
    const std::scoped_lock lock(mutex_);
    if (report_) return false;
    report_ = Report{std::move(site), message_of(exception), exception};
    stopped_.store(true, std::memory_order_release);
    wake.swap(listeners_);
  }
  for (const auto& listener : wake) listener();
  return true;
}

std::optional<FirstError::Report> FirstError::report() const {
  const std::scoped_lock lock(mutex_);
  return report_;
}

void FirstError::throw_if_stopped() const {
  if (stopped()) throw Stopped("given up: another device failed first");
}

void FirstError::on_stop(std::function<void()> wake) {
  {
    const std::scoped_lock lock(mutex_);
    if (!report_) {
      listeners_.push_back(std::move(wake));
      return;
    }
  }
  wake();
}

}  // namespace slimpipe
