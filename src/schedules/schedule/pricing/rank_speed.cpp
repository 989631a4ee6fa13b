#include "schedule/pricing/rank_speed.h"

#include <cmath>

namespace penstock {

void AddLaunches(Costs& costs, double launch) {
  for (std::vector<StageCosts>* all : {&costs.stages, &costs.by_slice}) {
    for (StageCosts& stage : *all) {
      stage.forward += launch;
      stage.backward_input += launch;
      stage.backward_weight += launch;
      stage.saved_by_whole_backward += launch;
      stage.recompute += launch;
    }
  }
}

Status SlowDown(Costs& costs, const Placement& placement, const std::map<int, double>& factors) {
  for (const auto& [rank, factor] : factors) {
    if (rank < 0 || rank >= placement.ranks()) {
      return InvalidArgument("rank {} does not exist; the ranks are 0 to {}", rank,
                             placement.ranks() - 1);
    }
    if (!std::isfinite(factor) || factor <= 0) {
      return InvalidArgument("rank {}: {} is not a factor above 0", rank, factor);
    }
  }
  for (std::vector<StageCosts>* all : {&costs.stages, &costs.by_slice}) {
    for (std::size_t i = 0; i < all->size(); ++i) {
      const std::size_t stage = i * costs.stages.size() / all->size();
      const auto slow = factors.find(placement.rank_of(static_cast<int>(stage)));
      if (slow == factors.end()) continue;
      for (const StageCost& cost : kStageCosts) {
        if (cost.kind == CostKind::kTime) (*all)[i].*cost.value *= slow->second;
      }
      if (Status status = CheckStage((*all)[i]); !status) {
        return tl::unexpected(In(fmt::format("rank {}", slow->first), std::move(status).error()));
      }
    }
  }
  return {};
}

}  // namespace penstock
