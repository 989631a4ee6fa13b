#include "cli/figures/report_run.h"

#include <algorithm>

#include "simulate/memory/memory_over_time.h"

namespace penstock {
namespace {

// Returns the memory limit, if every shown kind of memory counts against it.
std::optional<double> ShownLimit(const Simulated& simulated) {
  if (simulated.chosen.device_memory) return simulated.chosen.device_memory;
  for (const MemoryKind kind :
       {MemoryKind::kWeights, MemoryKind::kVersions, MemoryKind::kGradients, MemoryKind::kOptimizer,
        MemoryKind::kMessages, MemoryKind::kWorkspace}) {
    if (Holds(simulated.memory, kind)) return std::nullopt;
  }
  return simulated.chosen.memory_limit;
}

}  // namespace

std::string CostsText(const PricedSchedule& chosen) {
  const Costs& costs = chosen.costs;
  const StageCosts& first = costs.stages.front();
  const bool same =
      costs.by_slice.empty() && std::ranges::all_of(costs.stages, [&](const StageCosts& stage) {
        return stage.forward == first.forward && stage.backward_input == first.backward_input &&
               stage.backward_weight == first.backward_weight;
      });
  if (!same) return "costs differ by stage";
  const double rank = chosen.schedule.placement.chunks() * chosen.schedule.slices;
  const auto text = [&](double time) { return FormatAmount(time, chosen.time_unit); };
  std::string line =
      fmt::format("F {}, I {}, W {} of a rank and microbatch", text(first.forward * rank),
                  text(first.backward_input * rank), text(first.backward_weight * rank));
  if (costs.comm > 0) line += fmt::format(", communication {}", text(costs.comm));
  return line;
}

ReportRun RunOf(const Simulated& simulated, std::string label, const Schedule& schedule) {
  const Costs& costs = simulated.chosen.costs;
  return {std::move(label),
          &simulated.timeline,
          simulated.result,
          MemoryOverTime(schedule, simulated.timeline, costs),
          &schedule,
          ExplanationOf(simulated),
          simulated.messages,
          simulated.memory,
          ShownLimit(simulated),
          &costs};
}

}  // namespace penstock
