#include "runtime/emulation/gradient_gate.h"

#include <algorithm>

#include "base/index.h"

namespace penstock {

GradientGate::GradientGate(const PriceList& prices) : prices_(prices) {
  gradients_.resize(Index(prices.groups()) * Index(prices.updates()));
  if (gradients_.empty()) return;
  for (int stage = 0; stage < prices.schedule().stages(); ++stage) {
    for (int update = 0; update < prices.updates(); ++update) {
      Of(stage, update).needed += prices.rows_an_update() + (prices.Reduces(stage) ? 1 : 0);
    }
  }
}

GradientGate::Gradients& GradientGate::Of(int stage, int update) {
  const int index = prices_.GroupOf(stage) * prices_.updates() + update;
  return gradients_[index];
}

void GradientGate::Complete(int stage, int update, std::int64_t time) {
  if (gradients_.empty()) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  Gradients& gradients = Of(stage, update);
  const std::int64_t round = gradients.made / gradients.needed;
  std::int64_t& ready = gradients.ready[round % 2];
  const bool first = gradients.made % gradients.needed == 0;
  ready = first ? time : std::max(ready, time);
  if (++gradients.made % gradients.needed == 0) changed_.notify_all();
}

bool GradientGate::Wait(int stage, std::int64_t round, int update, std::int64_t& ready) {
  if (gradients_.empty()) return true;
  std::unique_lock<std::mutex> lock(mutex_);
  const Gradients& gradients = Of(stage, update);
  changed_.wait(lock, [&] { return stop_ || gradients.made >= (round + 1) * gradients.needed; });
  ready = std::max(ready, gradients.ready[round % 2]);
  return !stop_;
}

void GradientGate::Stop() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
}

}  // namespace penstock
