// GradientGate: blocks a STEP until the gradients of other ranks' stages that it needs are
// complete. Private to the emulation.
//
// The gradients of a round are complete in a group before any rank of the group ends its STEP, so
// no rank is ever two rounds ahead of another. Two times per group and update are therefore enough.
#pragma once

#include <cstdint>
#include <vector>

#include "base/mutex.h"
#include "runtime/emulation/price_list.h"

namespace penstock {

class GradientGate {
 public:
  // `prices` must outlive it.
  explicit GradientGate(const PriceList& prices);

  // Records that one of the stage's weight gradients, or its reduction, for an update of the
  // current round is complete at `time`.
  void Complete(int stage, int update, std::int64_t time);
  // Waits until everything that the stage's STEP needs has been recorded, and raises `ready` to the
  // time at which it is complete. Returns false after Stop. Any thread.
  [[nodiscard]] bool Wait(int stage, std::int64_t round, int update, std::int64_t& ready);
  // Ends every wait, now and later.
  void Stop();

 private:
  struct Gradients {
    std::int64_t needed = 0;  // per round
    std::int64_t made = 0;    // over all rounds
    std::int64_t ready[2] = {};
  };
  Gradients& Of(int stage, int update) PENSTOCK_REQUIRES(mutex_);

  const PriceList& prices_;
  const bool waits_;  // whether any STEP needs other ranks' gradients
  Mutex mutex_;
  CondVar changed_;
  std::vector<Gradients> gradients_ PENSTOCK_GUARDED_BY(mutex_);  // by (group, update)
  bool stop_ PENSTOCK_GUARDED_BY(mutex_) = false;
};

}  // namespace penstock
