#include "schedule/search/problem/memory_limit.h"

namespace penstock {

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
