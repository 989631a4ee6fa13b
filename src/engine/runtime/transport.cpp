#include "runtime/transport.h"

#include <utility>

namespace penstock {

void Transport::Abort(Error reason) {
  {
    const MutexLock lock(mutex_);
    if (has_reason_) return;
    has_reason_ = true;
    reason_ = std::move(reason);
  }
  aborted_.store(true, std::memory_order_seq_cst);
  WakeAll();
}

Error Transport::reason() const {
  const MutexLock lock(mutex_);
  return reason_;
}

}  // namespace penstock
