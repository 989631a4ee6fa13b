#include "schedule/search/problem/memory_limit.h"

#include <algorithm>

namespace penstock {

double AmountWithin(double limit, const Costs& costs, int indices, bool split) {
  const StageCosts& first = costs.stages.front();
  const double whole = first.activation, kept = first.activation_after_i;
  const bool alike = std::ranges::all_of(costs.stages, [&](const StageCosts& stage) {
    return stage.activation == whole && stage.activation_after_i == kept;
  });
  if (!alike || !(whole > 0) || kept > whole) return limit;
  // More than one microbatch on each of the rank's stages is never held.
  const double most = static_cast<double>(costs.stages.size()) * indices;
  const double within = limit * (1 + kRounding);
  const double wholes = std::min(most, std::floor(within / whole));
  double amount = wholes * whole;
  if (!split || kept == whole || !(kept > 0)) return amount;
  for (double count = wholes; count >= 0; --count) {
    const double halves = std::min(most - count, std::floor((within - count * whole) / kept));
    amount = std::max(amount, count * whole + halves * kept);
  }
  return amount;
}

Status CheckMemoryLimit(const ScheduleParams& params, const Placement& placement) {
  if (!params.memory_limit) return {};
  const double limit = *params.memory_limit;
  const double least = LeastMemory(placement, CostsOf(params, placement));
  // Half of the rounding that the schedulers allow.
  if (limit > 0 && limit >= least * (1 - kRounding / 2)) return {};
  return InvalidParameter("memory_limit",
                          "{}: must be at least {}, the memory of one microbatch on the worst rank",
                          params.memory_unit.Text(limit), params.memory_unit.Text(least));
}

}  // namespace penstock
