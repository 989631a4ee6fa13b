#include "scenario/price/simulated.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/index.h"
#include "scenario/price/peak_bytes.h"
#include "schedule/pairs.h"
#include "simulate/memory/memory_over_time.h"
#include "simulate/steady_state.h"
#include "simulate/summary.h"

namespace penstock {
namespace {

// Whether some rank's peak is above the memory limit, or its peak and states above the memory of
// its device. False without a limit.
bool ExceedsLimit(const PricedSchedule& chosen, const SimulationResult& result) {
  constexpr double kRounding = 1e-9;
  if (!chosen.device_memory) {
    return chosen.memory_limit && result.peak_memory > *chosen.memory_limit * (1 + kRounding);
  }
  for (std::size_t rank = 0; rank < result.ranks.size(); ++rank) {
    const double held = PeakOfRank(chosen, result, static_cast<int>(rank)).total();
    const double memory = chosen.model->MemoryOf(static_cast<int>(rank));
    if (held > memory * (1 + kRounding)) return true;
  }
  return false;
}

// The mean message_scale of the tensors that cross ranks.
double MeanScale(const Placement& placement, const Costs& costs) {
  double sum = 0, edges = 0;
  for (int stage = 0; stage < placement.stages(); ++stage) {
    const int next = placement.next(stage);
    if (next < 0 || placement.rank_of(next) == placement.rank_of(stage)) continue;
    sum += costs.stages[Index(stage)].message_scale;
    ++edges;
  }
  return edges == 0 ? 1 : sum / edges;
}

// What the label of a simulation ends with that its measured times follow.
constexpr std::string_view kPredicted = " (predicted)";

Simulated MeasuredRun(const PricedSchedule& chosen, Timeline times) {
  Simulated run;
  run.chosen = chosen;
  run.chosen.label = MeasuredLabel(chosen);
  run.timeline = std::move(times);
  run.measured = true;
  const Schedule& schedule = run.chosen.schedule;
  run.result = Summarize(schedule, run.timeline);
  const std::vector<MemoryCurve> memory = MemoryOverTime(schedule, run.timeline, chosen.costs);
  for (std::size_t rank = 0; rank < memory.size(); ++rank) {
    run.result.ranks[rank].peak_memory = PeakOf(memory[rank]);
  }
  FillTotals(schedule, run.result);
  run.above_limit = ExceedsLimit(run.chosen, run.result);
  return run;
}

Status AddSteadyStep(int repeat, Simulated& simulated) {
  if (repeat < 2 || repeat > kMostRepeats) {
    return InvalidParameter("repeat", "{}: give 2 to {} steps", repeat, kMostRepeats);
  }
  const Schedule& schedule = simulated.chosen.schedule;
  const bool flushes = schedule.weights == WeightPolicy::kFlush && schedule.steps == 1;
  if (!flushes && schedule.steps < 2) {
    return InvalidParameter("repeat", "{}: {} has no flush; give it `steps` 2 or more", repeat,
                            simulated.chosen.label);
  }
  PENSTOCK_TRY(simulated.steady_step,
               SteadyStepTime(Repeated(schedule, flushes ? repeat : 1), simulated.chosen.costs));
  return {};
}

}  // namespace

Result<Simulated> SimulateOne(PricedSchedule chosen, bool with_timeline) {
  Simulated simulated;
  simulated.chosen = std::move(chosen);
  const SimulateOptions how{.timeline = with_timeline ? &simulated.timeline : nullptr,
                            .jitter = nullptr,
                            .messages = with_timeline ? &simulated.messages : nullptr};
  const Schedule& schedule = simulated.chosen.schedule;
  PENSTOCK_TRY(simulated.result, Simulate(schedule, simulated.chosen.costs, how));
  simulated.above_limit = ExceedsLimit(simulated.chosen, simulated.result);
  if (simulated.chosen.model) simulated.step = EstimateOf(simulated.chosen, simulated.result);
  if (simulated.chosen.costs.overlap.kind == OverlapRule::Kind::kMax && HasPairs(schedule)) {
    Costs costs = simulated.chosen.costs;
    costs.overlap.kind = OverlapRule::Kind::kSum;
    PENSTOCK_TRY(simulated.overlap_sum, Simulate(schedule, costs));
  }
  if (simulated.chosen.jitter) {
    PENSTOCK_TRY(simulated.jittered,
                 SimulateRuns(schedule, simulated.chosen.costs, *simulated.chosen.jitter));
  }
  if (simulated.chosen.repeat) {
    PENSTOCK_TRY_STATUS(AddSteadyStep(*simulated.chosen.repeat, simulated));
  }
  return simulated;
}

Result<std::vector<Simulated>> SimulateEach(std::vector<PricedSchedule> chosen,
                                            bool with_timeline) {
  std::vector<Simulated> all;
  for (PricedSchedule& choice : chosen) {
    PENSTOCK_TRY(Simulated simulated, SimulateOne(std::move(choice), with_timeline));
    all.push_back(std::move(simulated));
  }
  return all;
}

std::string MeasuredLabel(const PricedSchedule& chosen) {
  std::string_view label = chosen.label;
  if (label.ends_with(kPredicted)) label.remove_suffix(kPredicted.size());
  return fmt::format("{} (measured)", label);
}

std::vector<Simulated> WithMeasured(std::vector<Simulated> all) {
  std::vector<Simulated> runs;
  for (Simulated& simulated : all) {
    std::optional<Timeline> times = std::exchange(simulated.chosen.measured, std::nullopt);
    runs.push_back(std::move(simulated));
    if (!times) continue;
    runs.back().chosen.label += kPredicted;
    runs.push_back(MeasuredRun(runs.back().chosen, std::move(*times)));
  }
  return runs;
}

Explanation ExplanationOf(const Simulated& simulated) {
  const PricedSchedule& chosen = simulated.chosen;
  std::optional<MemoryBound> bound;
  if (chosen.memory_limit && chosen.heeds_limit)
    bound.emplace(MemoryBound{chosen.costs, *chosen.memory_limit});
  return Explain(chosen.schedule, simulated.timeline, simulated.messages, bound);
}

ClosedForm ClosedFormOf(const PricedSchedule& chosen) {
  if (chosen.algorithm == nullptr) return {};
  ClosedForm form = ClosedFormOf(*chosen.algorithm, chosen.params);
  if (form.peak_memory) *form.peak_memory *= chosen.activation;
  return form;
}

double WholeMessages(const PricedSchedule& chosen, double messages) {
  const ScheduleParams& params = chosen.params;
  return messages / (double{1} * params.microbatches * params.steps * params.slices) *
         chosen.mean_length;
}

std::optional<double> BytesAMicrobatch(const PricedSchedule& chosen, double messages) {
  if (chosen.costs.message_bytes == 0) return std::nullopt;
  return WholeMessages(chosen, messages) * chosen.params.slices * chosen.costs.message_bytes *
         MeanScale(chosen.schedule.placement, chosen.costs);
}

bool CountsMessages(const Simulated& simulated) {
  return simulated.chosen.memory_unit == "B" && !simulated.measured;
}

namespace {

// What each rank always holds in addition to states; empty without a model.
std::vector<std::array<double, kMemoryKinds>> HeldAlways(const Simulated& simulated) {
  std::vector<std::array<double, kMemoryKinds>> all;
  if (!simulated.step) return all;
  for (std::size_t rank = 0; rank < simulated.step->ranks.size(); ++rank) {
    const PeakBytes bytes = HeldAlways(simulated.chosen, static_cast<int>(rank));
    std::array<double, kMemoryKinds>& held = all.emplace_back();
    held[Index(MemoryKind::kActivations)] = bytes.activations;
    held[Index(MemoryKind::kMessages)] = bytes.messages;
    held[Index(MemoryKind::kGathered)] = bytes.gathered;
    held[Index(MemoryKind::kWorkspace)] = bytes.workspace;
    held[Index(MemoryKind::kOthers)] = bytes.others;
    held[Index(MemoryKind::kFragments)] = simulated.step->ranks[rank].fragmentation;
    held[Index(MemoryKind::kContext)] = bytes.context;
  }
  return all;
}

// Whether the implementation says how large its buffers of messages are.
bool HasMessageBuffers(const PricedSchedule& chosen) {
  return chosen.model && chosen.model->batch.profile.get().overhead != nullptr;
}

}  // namespace

void AddMemory(std::vector<Simulated>& all) {
  for (Simulated& simulated : all) {
    const PricedSchedule& chosen = simulated.chosen;
    const double per_byte = CountsMessages(simulated) && !HasMessageBuffers(chosen) ? 1 : 0;
    simulated.memory = MemoryByKind({chosen.schedule, simulated.timeline, simulated.messages,
                                     chosen.costs, per_byte, HeldAlways(simulated)});
  }
}

}  // namespace penstock
