#include "schedule/costs.h"

namespace penstock {
namespace {

Status CheckAmount(double value, double most) {
  if (!(value >= 0)) return InvalidArgument("must be at least 0, not {}", value);
  if (value > most) return InvalidArgument("must be at most {}, not {}", most, value);
  return {};
}

}  // namespace

Status CheckTime(double time) { return CheckAmount(time, kMostTime); }
Status CheckMemory(double amount) { return CheckAmount(amount, kMostMemory); }

Costs Costs::Uniform(const Placement& placement, int slices, double f, double i, double w,
                     double comm, double kept_for_weight) {
  const double share = static_cast<double>(placement.chunks()) * slices;
  StageCosts stage{f / share, i / share, w / share, 1 / share, kept_for_weight / share};
  stage.recompute = stage.forward;
  Costs costs;
  costs.stages.assign(placement.stages(), stage);
  costs.comm = comm;
  return costs;
}

double Costs::LargestMessage() const {
  double largest = 0;
  for (const StageCosts& stage : stages) largest = std::max(largest, stage.message_scale);
  return message_bytes * largest;
}

}  // namespace penstock
