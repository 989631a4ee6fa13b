// GradientGate: what a STEP waits for where it needs the gradients of other ranks' stages. Private
// to the emulation.
//
// A round's gradients of a group are complete before any rank of the group is through with its
// STEP, so no rank is ever two rounds ahead of another: two times a group and update are enough.
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

  // One of the stage's weight gradients, or its reduction, of an update of a round is there at
  // `time`.
  void Complete(int stage, int update, std::int64_t time);
  // Waits until all that the stage's STEP needs is on its way; `ready` is raised to when it is
  // there. False after Stop. Any thread.
  [[nodiscard]] bool Wait(int stage, std::int64_t round, int update, std::int64_t& ready);
  // Ends every wait, now and later.
  void Stop();

 private:
  struct Gradients {
    std::int64_t needed = 0;  // a round
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
