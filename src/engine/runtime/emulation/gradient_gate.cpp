#include "runtime/emulation/gradient_gate.h"

#include <algorithm>

#include "base/index.h"
#include "schedule/deps.h"

namespace penstock {

GradientGate::GradientGate(const PriceList& prices)
    : prices_(prices), waits_(prices.groups() > 0 && prices.updates() > 0) {
  if (!waits_) return;
  const MutexLock lock(mutex_);
  gradients_.resize(Index(prices.groups()) * Index(prices.updates()));
  for (int stage = 0; stage < prices.schedule().stages(); ++stage) {
    if (!HasGradients(prices.schedule().backward_of(stage))) continue;
    for (int update = 0; update < prices.updates(); ++update) {
      Of(stage, update).needed +=
          prices.microbatches_per_update() + (prices.Reduces(stage) ? 1 : 0);
    }
  }
}

GradientGate::Gradients& GradientGate::Of(int stage, int update) {
  const int index = prices_.GroupOf(stage) * prices_.updates() + update;
  return gradients_[index];
}

void GradientGate::Complete(int stage, int update, std::int64_t time) {
  if (!waits_) return;
  const MutexLock lock(mutex_);
  Gradients& gradients = Of(stage, update);
  const std::int64_t round = gradients.made / gradients.needed;
  std::int64_t& ready = gradients.ready[round % 2];
  const bool first = gradients.made % gradients.needed == 0;
  ready = first ? time : std::max(ready, time);
  if (++gradients.made % gradients.needed == 0) changed_.NotifyAll();
}

bool GradientGate::Wait(int stage, std::int64_t round, int update, std::int64_t& ready) {
  if (!waits_ || !HasGradients(prices_.schedule().backward_of(stage))) return true;
  MutexLock lock(mutex_);
  const Gradients& gradients = Of(stage, update);
  while (!stop_ && gradients.made < (round + 1) * gradients.needed) changed_.Wait(lock);
  ready = std::max(ready, gradients.ready[round % 2]);
  return !stop_;
}

void GradientGate::Stop() {
  {
    const MutexLock lock(mutex_);
    stop_ = true;
  }
  changed_.NotifyAll();
}

}  // namespace penstock
