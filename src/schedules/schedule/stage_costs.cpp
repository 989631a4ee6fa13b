#include "schedule/stage_costs.h"

#include <cmath>

namespace penstock {
namespace {

double Most(CostKind kind) {
  switch (kind) {
    case CostKind::kTime:
      return kMostTime;
    case CostKind::kMemory:
    case CostKind::kMemoryChange:
      return kMostMemory;
    case CostKind::kFactor:
      return kMostFactor;
  }
  return 0;
}

// Returns what the value must be, or nothing if it is that.
std::string Requirement(CostKind kind, double value) {
  if (kind == CostKind::kMemoryChange) value = std::abs(value);
  if (!(value >= 0)) return "must be at least 0";
  if (value > Most(kind)) return fmt::format("must be at most {}", Most(kind));
  return "";
}

Status Check(CostKind kind, double value) {
  const std::string requirement = Requirement(kind, value);
  if (!requirement.empty()) return InvalidArgument("{}, not {}", requirement, value);
  return {};
}

}  // namespace

Status CheckTime(double time) { return Check(CostKind::kTime, time); }
Status CheckMemory(double amount) { return Check(CostKind::kMemory, amount); }
Status CheckCost(const StageCost& cost, double value) { return Check(cost.kind, value); }

Status CheckStage(const StageCosts& stage) {
  for (const StageCost& cost : kStageCosts) {
    const double value = stage.*cost.value;
    const std::string requirement = Requirement(cost.kind, value);
    if (!requirement.empty()) return InvalidParameter(cost.name, "{}: {}", value, requirement);
  }
  return {};
}

}  // namespace penstock
