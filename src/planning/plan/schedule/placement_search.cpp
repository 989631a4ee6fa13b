#include "plan/schedule/placement_search.h"

#include <algorithm>

#include "base/result.h"
#include "schedule/algorithms/auto_schedule.h"
#include "schedule/search/problem/memory_limit.h"
#include "schedule/search/search.h"

namespace penstock {
Placement PlacementSearch::PlacementOf(Form form, int ranks, int chunks) {
  switch (form) {
    case Form::kLinear:
      return Placement::Linear(ranks);
    case Form::kLooped:
      return Placement::Looped(ranks, chunks);
    case Form::kZigzag:
    case Form::kWaves:
      break;
  }
  return Placement::Zigzag(ranks, chunks);
}

PlacementSearch::PlacementSearch(Form form, int chunks, const ScheduleParams& params, Costs costs)
    : form_(form),
      params_(params),
      placement_(PlacementOf(form, params.ranks, chunks)),
      costs_(std::move(costs)) {}

std::string PlacementSearch::NameWithin(double limit) const {
  switch (form_) {
    case Form::kLinear:
      return "linear-search";
    case Form::kLooped:
      return "looped-search";
    case Form::kZigzag:
      return placement_.chunks() == 2 ? "vee-search" : "zigzag-search";
    case Form::kWaves:
      break;
  }
  return fmt::format("hanayo:memory-limit={}", limit);
}

double PlacementSearch::AmountWithin(double limit) const {
  const bool splits = form_ != Form::kWaves;
  if (!splits) limit = std::min(limit, 2.0 * params_.ranks * LeastMemory(placement_, costs_));
  return penstock::AmountWithin(limit, costs_, params_.microbatches, splits);
}

void PlacementSearch::Prepare() {
  ScheduleParams params = params_;
  params.memory_limit.reset();
  params.chunks = placement_.chunks();
  if (form_ == Form::kLooped) {
    for (int group = (params.ranks + 1) / 2; group <= params.ranks; ++group) {
      params.group = group;
      if (auto schedule = Generate("interleaved-zb", params)) {
        known_.push_back(std::move(schedule->lanes));
      }
    }
    return;
  }
  params.costs = costs_;
  const Problem problem = {.placement = placement_,
                           .costs = costs_,
                           .indices = params.microbatches,
                           .objective = params.objective};
  if (is_cataloged() && form_ == Form::kZigzag) known_ = KnownOnVee(problem, params);
}

std::vector<Lane> PlacementSearch::Run(double memory_limit, double effort) const {
  if (form_ == Form::kWaves) {
    ScheduleParams params = params_;
    params.chunks = placement_.chunks();
    params.memory_limit = memory_limit;
    params.costs = costs_;
    params.objective = Objective::kMakespan;
    auto schedule = Generate("hanayo", params);
    PENSTOCK_CHECK(schedule.has_value());
    return std::move(schedule->lanes);
  }
  const Problem problem = {placement_, costs_,       params_.microbatches, 1,
                           true,       memory_limit, params_.objective};
  if (is_cataloged() && effort >= 1) {
    return form_ == Form::kLinear ? SearchLinear(problem) : SearchVee(problem, known_);
  }
  return SearchLanes(
      problem,
      [&](const Problem& part) {
        return part.indices == problem.indices ? Seeds(known_) : Seeds{};
      },
      effort);
}

}  // namespace penstock
