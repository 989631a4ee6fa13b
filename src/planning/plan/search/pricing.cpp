#include "plan/search/pricing.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <limits>

#include "plan/bound/makespan_bound.h"
#include "scenario/price/model.h"
#include "scenario/price/simulated.h"
#include "schedule/pairs.h"

namespace penstock {
namespace {

constexpr int kMostChunks = 8;
constexpr int kSlices[] = {1, 2, 4};
// Rules give these in a millisecond; searches for the order of actions, which others need, take up
// to a second.
constexpr std::string_view kByRule[] = {"gpipe",      "1f1b",           "interleaved",
                                        "looped-bfs", "interleaved-zb", "dualpipe",
                                        "dualpipev",  "zbv-formatted"};

// Whether the schedule tells what schedules of its kind can reach for a division.
bool IsCommon(const Algorithm& algorithm, int chunks, int slices) {
  if (algorithm.name == "looped-bfs") return false;
  if (algorithm.supported.slices) return slices == 4 && chunks <= 2;
  return chunks <= 2 || chunks == 4;
}

Candidate CandidateOf(const ScheduleChoice& choice, const Algorithm& algorithm) {
  Candidate candidate{.name = choice.name};
  if (algorithm.supported.max_chunks > algorithm.supported.min_chunks) {
    candidate.options.emplace_back("chunks", std::to_string(choice.chunks));
  }
  if (choice.slices > 1) candidate.options.emplace_back("slices", std::to_string(choice.slices));
  return candidate;
}

}  // namespace

std::vector<ScheduleChoice> ScheduleChoices(int pipeline, int layers,
                                            const std::vector<std::string>& allowed,
                                            const std::vector<std::string>& excluded) {
  const auto has = [](const std::vector<std::string>& list, std::string_view name) {
    return std::ranges::find(list, name) != list.end();
  };
  if (pipeline == 1) {  // all schedules are the same
    const bool is_allowed = (allowed.empty() || has(allowed, "1f1b")) && !has(excluded, "1f1b");
    if (!is_allowed) return {};
    return {{.name = "1f1b"}};
  }
  std::vector<ScheduleChoice> choices;
  for (const Algorithm& algorithm : Catalog()) {
    const SupportedParameters& supported = algorithm.supported;
    // Schedules of several steps train with weights of different ages.
    if (supported.steps || has(excluded, algorithm.name)) continue;
    if (!allowed.empty() && !has(allowed, algorithm.name)) continue;
    const int most = std::min({supported.max_chunks, kMostChunks, layers / pipeline});
    for (int chunks = supported.min_chunks; chunks <= most; ++chunks) {
      if (chunks == 1 && supported.default_chunks > 1) continue;  // that is a schedule without
      for (const int slices : kSlices) {
        if (slices > 1 && !supported.slices) break;
        if (slices == 1 && supported.slices) continue;  // the same as one without slices
        const bool by_rule = std::ranges::find(kByRule, algorithm.name) != std::end(kByRule) ||
                             (slices > 1 && chunks == 1);
        choices.push_back({.name = std::string(algorithm.name),
                           .chunks = chunks,
                           .slices = slices,
                           .searches = !by_rule,
                           .takes_limit = supported.objective,
                           .is_common = by_rule && IsCommon(algorithm, chunks, slices)});
      }
    }
  }
  return choices;
}

Result<Placement> PlacementOf(const ScheduleChoice& choice, const JobDivision& division) {
  PENSTOCK_TRY(const Algorithm* algorithm, FindAlgorithm(choice.name));
  ScheduleParams params;
  params.ranks = division.pipeline;
  params.chunks = choice.chunks;
  params.microbatches = division.microbatches;
  params.slices = choice.slices;
  PENSTOCK_TRY(const ScheduleParams checked, CheckParams(*algorithm, params));
  return PlacementOf(*algorithm, checked);
}

Result<TrainingPlan> PriceOf(const Scenario& base, const JobDivision& division,
                             const ScheduleChoice& choice,
                             const std::function<Status(const Schedule&)>& check) {
  TrainingPlan plan;
  plan.division = division;
  plan.schedule = choice.name;
  plan.chunks = choice.chunks;
  plan.slices = choice.slices;
  plan.scenario = base;
  Scenario& scenario = plan.scenario;
  SetDivision(division, scenario);
  if (!choice.layers.empty()) {
    scenario.layout = fmt::format("{}", fmt::join(choice.layers, ","));
  }
  PENSTOCK_TRY(const Algorithm* algorithm, FindAlgorithm(choice.name));
  scenario.schedules = {CandidateOf(choice, *algorithm)};
  PENSTOCK_TRY(PricedSchedule chosen, BuildPlan(plan));
  PENSTOCK_TRY_STATUS(check(chosen.schedule));
  plan.overlap = chosen.costs.overlap;
  // Scenarios without such pairs refuse their price.
  if (!HasPairs(chosen.schedule)) scenario.overlap.reset();
  PENSTOCK_TRY(const Simulated simulated, SimulateOne(std::move(chosen), false));
  if (!simulated.step) return InvalidParameter("model", ": is missing");
  plan.estimate = *simulated.step;
  for (int rank = 0; rank < simulated.chosen.schedule.ranks(); ++rank) {
    plan.memory.push_back(simulated.chosen.model->MemoryOf(rank));
  }
  for (const RankResult& rank : simulated.result.ranks) plan.rank_busy.push_back(rank.busy);
  plan.placement = simulated.chosen.schedule.placement;
  plan.layers = choice.layers;
  return plan;
}

Result<PricedSchedule> BuildPlan(const TrainingPlan& plan) {
  return BuildOne(plan.scenario, plan.scenario.schedules.front(), {});
}

void AddBound(TrainingPlan& plan) {
  plan.lower_bound = plan.busy() + plan.step_time() - plan.estimate.makespan;
  if (plan.slices > 1) return;
  auto chosen = BuildPlan(plan);
  if (!chosen) return;
  chosen->costs.overlap = plan.overlap;
  const Schedule& schedule = chosen->schedule;
  const double pipeline =
      LengthBound(schedule.placement, chosen->costs, schedule.microbatches,
                  std::numeric_limits<double>::infinity(), Objective::kMakespan);
  plan.lower_bound = pipeline + plan.step_time() - plan.estimate.makespan;
}

}  // namespace penstock
