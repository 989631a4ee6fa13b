#include "train/evaluation/held_out.h"

namespace penstock {

double HeldOutLoss::After(std::int64_t steps) {
  parts_.gather();
  const double loss = AfterLast(steps);
  parts_.release();
  return loss;
}

double HeldOutLoss::AfterLast(std::int64_t steps) {
  if (steps == steps_) return loss_;
  loss_ = EvaluateText(parts_.model, parts_.text, parts_.threads);
  steps_ = parts_.model.stopped() ? -1 : steps;
  return loss_;
}

}  // namespace penstock
