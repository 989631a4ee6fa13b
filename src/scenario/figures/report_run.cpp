#include "scenario/figures/report_run.h"

#include <algorithm>

#include "scenario/figures/advice.h"
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

// All memory of the rank that holds most, as far as the costs say.
KeyFigure PeakFigure(const Simulated& simulated) {
  const std::string& unit = simulated.chosen.memory_unit;
  const double activations = simulated.result.peak_memory;
  double all = activations;
  for (const RankMemory& rank : simulated.memory) all = std::max(all, rank.peak.amount);
  std::string note = all > activations ? "activations " + FormatAmount(activations, unit)
                     : unit.empty()    ? "activations of one rank and microbatch"
                                       : "of activations, of the worst rank";
  if (simulated.above_limit) note += ", above the limit";
  return {"peak memory", FormatAmount(all, unit), note};
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

ReportInput ReportOf(const Simulated& simulated) {
  ReportInput input;
  input.schedule = &simulated.chosen.schedule;
  input.time_unit = simulated.chosen.time_unit;
  input.memory_unit = simulated.chosen.memory_unit;
  input.costs = CostsText(simulated.chosen);
  return input;
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
          &costs,
          simulated.above_limit,
          simulated.chosen.memory_unit,
          simulated.chosen.reading};
}

ReportInput ExplainedReport(const Scenario& scenario, const std::vector<Simulated>& all) {
  ReportInput input = ReportOf(all.front());
  for (const Simulated& simulated : all) {
    // Only of the same object, the page compares single actions. A measured run that replaces its
    // simulation, as in diff, has the schedule alone.
    const bool shares = simulated.measured && &simulated != &all.front() &&
                        simulated.chosen.label == MeasuredLabel((&simulated - 1)->chosen);
    const Schedule& schedule = shares ? *input.runs.back().schedule : simulated.chosen.schedule;
    input.runs.push_back(
        RunOf(simulated, all.size() > 1 ? simulated.chosen.label : "simulated", schedule));
  }
  input.advice = AdviceOf(scenario, all);
  return input;
}

std::vector<KeyFigure> KeyFiguresOf(const Simulated& simulated) {
  const SimulationResult& result = simulated.result;
  const std::string& time_unit = simulated.chosen.time_unit;
  std::string note =
      time_unit.empty() ? "in the unit of the costs" : "from the first action to the last";
  if (simulated.overlap_sum) {
    note = fmt::format("if pairs take the longer of F and B; {} if they take F + B",
                       FormatAmount(simulated.overlap_sum->makespan, time_unit));
  }
  return {{"makespan", FormatAmount(result.makespan, time_unit), note},
          {"bubble", FormatPercent(result.bubble), "1 - ideal / makespan"},
          {"span bubble", FormatPercent(result.span_bubble), "1 - ideal / longest span of a rank"},
          PeakFigure(simulated),
          {"messages", fmt::format("{}", result.messages), "between ranks, in both directions"},
          {"actions", fmt::format("{}", result.actions), "that compute"}};
}

}  // namespace penstock
