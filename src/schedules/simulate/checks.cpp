#include "simulate/checks.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "base/index.h"
#include "schedule/text/text.h"
#include "schedule/vocabulary.h"

namespace penstock {
namespace {

std::string WaitText(const Schedule& schedule, const LaneState& state, const Arrivals& arrivals,
                     std::size_t rank) {
  const std::string action = ToText(schedule.lanes[rank][state.position]);
  const Arrivals::Key key = state.waits_for;
  if (key == kOtherGradients) {
    return fmt::format("rank {} at {} waits for the gradients of other ranks", rank, action);
  }
  const std::size_t stage = arrivals.StageOf(key);
  if (stage == Index(schedule.stages())) {
    const bool softmax = static_cast<SharedValue>(arrivals.KindOf(key)) == SharedValue::kSoftmax;
    return fmt::format("rank {} at {} waits for {} of microbatch {} on every rank", rank, action,
                       softmax ? "S" : "EMBED", arrivals.MicrobatchOf(key));
  }
  if (IsWaitSend(schedule.lanes[rank][state.position].first.op)) {
    return fmt::format("rank {} at {} waits for its RECV", rank, action);
  }
  const bool gradient = arrivals.KindOf(key) == ValueKind::kGradient;
  return fmt::format("rank {} at {} waits for the {} of stage {}, microbatch {} (rank {})", rank,
                     action, gradient ? "gradient" : "activation", stage,
                     arrivals.MicrobatchOf(key),
                     schedule.placement.rank_of(static_cast<int>(stage)));
}

}  // namespace

Status CheckInput(const Schedule& schedule, const Costs& costs) {
  if (schedule.lanes.size() != Index(schedule.ranks())) {
    return InvalidArgument("{} lanes for {} ranks; give one lane per rank", schedule.lanes.size(),
                           schedule.ranks());
  }
  if (schedule.indices() < 0 || schedule.slices < 1) {
    return InvalidArgument("{} microbatches in {} slices: must be at least 0 and 1",
                           schedule.microbatches, schedule.slices);
  }
  if (costs.stages.size() != Index(schedule.stages())) {
    return InvalidArgument("costs of {} stages for a schedule of {}; give one entry per stage",
                           costs.stages.size(), schedule.stages());
  }
  if (!costs.stages.empty() && costs.by_slice.size() % costs.stages.size() != 0) {
    return InvalidArgument("{} costs by slice for {} stages; give equally many for each stage",
                           costs.by_slice.size(), costs.stages.size());
  }
  const auto usable = [](double cost) { return std::isfinite(cost) && cost >= 0; };
  for (const auto& [name, cost] :
       {std::pair("comm", costs.comm), std::pair("overlap", costs.overlap.factor),
        std::pair("offload", costs.offload), std::pair("reload", costs.reload),
        std::pair("exchange", costs.exchange)}) {
    if (!usable(cost)) return InvalidParameter(name, "{}: must be finite and at least 0", cost);
  }
  for (const std::vector<StageCosts>* list : {&costs.stages, &costs.by_slice}) {
    for (const StageCosts& stage : *list) {
      for (const StageCost& cost : kStageCosts) {
        const double value = stage.*cost.value;
        if (usable(cost.kind == CostKind::kMemoryChange ? std::abs(value) : value)) continue;
        return InvalidParameter(cost.name, "{}: must be finite and at least 0", value);
      }
    }
  }
  if (costs.offload_sharing < 1 || costs.offload_sharing > std::max(1, schedule.ranks())) {
    return InvalidParameter(
        "offload_sharing",
        "{}: that many ranks cannot share a link to the slower pool; give 1 to {}",
        costs.offload_sharing, schedule.ranks());
  }
  return CheckTopology(costs.topology, schedule.ranks());
}

Status CheckDone(const Schedule& schedule, const std::vector<LaneState>& ranks,
                 const Arrivals& arrivals) {
  constexpr std::size_t kNamed = 4;
  std::string waiting;
  std::size_t count = 0;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    if (ranks[r].position == schedule.lanes[r].size()) continue;
    if (++count > kNamed) continue;
    waiting += (count > 1 ? "; " : "") + WaitText(schedule, ranks[r], arrivals, r);
  }
  if (count == 0) return {};
  if (count > kNamed) waiting += fmt::format("; and {} more ranks", count - kNamed);
  return InvalidArgument("the schedule cannot run to its end: {}", waiting);
}

}  // namespace penstock
