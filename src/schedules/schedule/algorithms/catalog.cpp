#include "schedule/catalog.h"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <deque>
#include <utility>

#include "base/index.h"
#include "base/text/nearest.h"
#include "base/text/quote.h"
#include "schedule/algorithms/algorithms.h"
#include "schedule/search/problem/price_lanes.h"

namespace penstock {
namespace {

// The most forwards of one schedule: 8 GiB of F and B actions. Larger sizes are typing mistakes.
constexpr std::int64_t kMaxForwards = std::int64_t{1} << 28;

Status CheckSize(const Algorithm& algorithm, const ScheduleParams& params) {
  const std::pair<const char*, int> counts[] = {{"ranks", params.ranks},
                                                {"microbatches", params.microbatches},
                                                {"slices", params.slices},
                                                {"steps", params.steps}};
  for (const auto& [name, count] : counts) {
    if (count < 1) return InvalidParameter(name, "{}: must be at least 1", count);
  }
  const std::int64_t stages =
      std::int64_t{params.ranks} * params.chunks * algorithm.supported.replicas;
  if (stages > kMaxStages) {
    return InvalidParameter("ranks", "{}: with {} chunks, {} stages; there can be at most {}",
                            params.ranks, params.chunks, stages, kMaxStages);
  }
  // Each factor is an int, so dividing stepwise cannot overflow.
  const std::int64_t most_indices = kMaxForwards / stages;
  const std::int64_t most = most_indices / params.slices / params.steps;
  if (params.microbatches > most) {
    return InvalidParameter("microbatches",
                            "{}: must be at most {} with {} stages, {} slices and {} steps",
                            params.microbatches, most, stages, params.slices, params.steps);
  }
  if (params.costs && params.costs->stages.size() != Index(stages)) {
    return InvalidParameter(
        "costs", "of {} stages for {} ranks x {} chunks; give one entry per stage, {} in all",
        params.costs->stages.size(), params.ranks, params.chunks, stages);
  }
  return {};
}

Status CheckSupported(const Algorithm& algorithm, const ScheduleParams& params) {
  const SupportedParameters& supported = algorithm.supported;
  if (params.chunks < supported.min_chunks || params.chunks > supported.max_chunks) {
    if (supported.min_chunks == supported.max_chunks) {
      return InvalidParameter("chunks", "{}: must be {}", params.chunks, supported.min_chunks);
    }
    return InvalidParameter("chunks", "{}: must be {} to {}", params.chunks, supported.min_chunks,
                            supported.max_chunks);
  }
  const auto refuse = [](std::string_view name, const auto& value) {
    return InvalidParameter(name, "{}: the schedule takes no {}", value, name);
  };
  if (params.group != 0 && !supported.group) return refuse("group", params.group);
  if (params.slices != 1 && !supported.slices) return refuse("slices", params.slices);
  if (params.waves != 0 && !supported.waves) return refuse("waves", params.waves);
  if (params.steps != 1 && !supported.steps) return refuse("steps", params.steps);
  if (params.split && !supported.split) return refuse("split", params.split);
  if (params.memory_limit && !supported.memory_limit) {
    return refuse("memory_limit", params.memory_unit.Text(*params.memory_limit));
  }
  if (params.objective != Objective::kMakespan && !supported.objective) {
    return refuse("objective", "span");
  }
  return {};
}

// Returns the name without the parts in which spellings differ: torch writes
// ScheduleInterleaved1F1B, others interleaved_1f1b or 1f1b-interleaved.
std::string PlainName(std::string_view name) {
  constexpr std::string_view kPrefix = "schedule";
  std::string plain;
  for (const char c : name) {
    if (c == '-' || c == '_' || c == ' ') continue;
    plain += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return plain.compare(0, kPrefix.size(), kPrefix) == 0 ? plain.substr(kPrefix.size()) : plain;
}

// The algorithms of the embedding program. In a deque, so that pointers to them stay valid.
std::deque<Algorithm>& AddedAlgorithms() {
  static std::deque<Algorithm> added;
  return added;
}

bool IsCalled(const Algorithm& algorithm, const std::string& plain_name) {
  const auto same = [&](std::string_view other) { return PlainName(other) == plain_name; };
  return same(algorithm.name) ||
         std::any_of(algorithm.aliases.begin(), algorithm.aliases.end(), same);
}

// Returns the number of edges between ranks in the chain of one microbatch.
std::optional<std::int64_t> EdgesBetweenRanks(PlacementForm form, const ScheduleParams& params) {
  const std::int64_t p = params.ranks, v = params.chunks;
  switch (form) {
    case PlacementForm::kLooped:
      return p > 1 ? p * v - 1 : 0;
    case PlacementForm::kLinear:
    case PlacementForm::kVee:
    case PlacementForm::kZigzag:
    case PlacementForm::kBidirectional:
      return v * (p - 1);
    case PlacementForm::kOther:
      break;
  }
  return std::nullopt;
}

}  // namespace

std::string_view ToText(PlacementForm form) {
  switch (form) {
    case PlacementForm::kLinear:
      return "linear";
    case PlacementForm::kLooped:
      return "looped";
    case PlacementForm::kVee:
      return "vee";
    case PlacementForm::kZigzag:
      return "zigzag";
    case PlacementForm::kBidirectional:
      return "bidirectional";
    case PlacementForm::kOther:
      break;
  }
  return "other";
}

std::span<const Algorithm> Catalog() {
  static const std::vector<Algorithm> catalog = {
#define ALGORITHM(function) function(),
#include "schedule/algorithms/algorithms.def"
#undef ALGORITHM
  };
  return catalog;
}

Status AddAlgorithm(Algorithm algorithm) {
  if (PlainName(algorithm.name).empty()) return InvalidArgument("an algorithm needs a name");
  if (!algorithm.generate)
    return InvalidArgument("algorithm {} has no generate function", algorithm.name);
  std::vector<std::string_view> names = algorithm.aliases;
  names.push_back(algorithm.name);
  for (const std::string_view name : names) {
    if (FindAlgorithm(name)) return InvalidArgument("a schedule {} exists already", Quote(name));
  }
  if (!algorithm.closed_form) {
    algorithm.closed_form = [](const ScheduleParams&) { return ClosedForm{}; };
  }
  AddedAlgorithms().push_back(std::move(algorithm));
  return {};
}

Result<const Algorithm*> FindAlgorithm(std::string_view name) {
  const std::string plain = PlainName(name);
  std::vector<std::string_view> names, aliases;
  const auto find = [&](const auto& algorithms) -> const Algorithm* {
    for (const Algorithm& algorithm : algorithms) {
      if (IsCalled(algorithm, plain)) return &algorithm;
      names.push_back(algorithm.name);
      aliases.insert(aliases.end(), algorithm.aliases.begin(), algorithm.aliases.end());
    }
    return nullptr;
  };
  if (const Algorithm* const ours = find(Catalog())) return ours;
  if (const Algorithm* const added = find(AddedAlgorithms())) return added;
  const std::string list = fmt::format("the schedules are {}", fmt::join(names, ", "));
  names.insert(names.end(), aliases.begin(), aliases.end());
  return NotFound("no schedule is called {}; {}", Quote(name), DidYouMean(name, names, list));
}

namespace {

Result<ScheduleParams> Checked(const Algorithm& algorithm, ScheduleParams params) {
  if (params.chunks == 0) {
    const bool by_waves = algorithm.supported.waves && params.waves > 0;
    if (by_waves && params.waves > kMaxStages / 2) {
      return InvalidParameter("waves", "{}: must be at most {}; each has two stages per rank",
                              params.waves, kMaxStages / 2);
    }
    params.chunks = by_waves ? 2 * params.waves : algorithm.supported.default_chunks;
  }
  PENSTOCK_TRY_STATUS(CheckSupported(algorithm, params));
  PENSTOCK_TRY_STATUS(CheckSize(algorithm, params));
  if (algorithm.check) PENSTOCK_TRY_STATUS(algorithm.check(params));
  return params;
}

}  // namespace

Result<ScheduleParams> CheckParams(const Algorithm& algorithm, ScheduleParams params) {
  auto checked = Checked(algorithm, std::move(params));
  if (checked) return checked;
  return tl::unexpected(In(fmt::format("schedule {}", algorithm.name), std::move(checked).error()));
}

ClosedForm ClosedFormOf(const Algorithm& algorithm, const ScheduleParams& params) {
  ClosedForm form;
  const std::int64_t microbatches = std::int64_t{params.microbatches} * params.steps;
  if (!params.costs) {
    if (algorithm.closed_form) form = algorithm.closed_form(params);
    // Every rank computes its share of every microbatch, so all are equally busy.
    const double work = params.forward + params.backward_input + params.backward_weight;
    if (form.makespan && *form.makespan > 0 && !form.bubble) {
      form.bubble = 1 - static_cast<double>(microbatches) * work / *form.makespan;
    }
  }
  if (const auto edges = EdgesBetweenRanks(algorithm.placement, params)) {
    form.messages = 2 * *edges * microbatches * params.slices;
  }
  return form;
}

ScheduleParams DropUnsupported(const Algorithm& algorithm, ScheduleParams params) {
  const SupportedParameters& supported = algorithm.supported;
  if (params.chunks < supported.min_chunks || params.chunks > supported.max_chunks)
    params.chunks = 0;
  if (!supported.group) params.group = 0;
  if (!supported.slices) params.slices = 1;
  if (!supported.waves) params.waves = 0;
  if (!supported.steps) params.steps = 1;
  if (!supported.split) params.split = false;
  if (!supported.memory_limit) params.memory_limit.reset();
  if (!supported.objective) params.objective = Objective::kMakespan;
  return params;
}

namespace {

// Returns the schedule of a trained model.
Result<Schedule> GenerateTrained(const Algorithm& algorithm, const ScheduleParams& params) {
  PENSTOCK_TRY(const ScheduleParams checked, CheckParams(algorithm, params));
  Schedule schedule = algorithm.generate(checked);
  schedule.algorithm = algorithm.name;
  return schedule;
}

// Whether the lanes are such as searches make and price.
bool ComputesOnly(const Schedule& schedule) {
  return std::ranges::all_of(schedule.lanes, [](const Lane& lane) {
    return std::ranges::all_of(
        lane, [](const Action& action) { return IsCompute(action) && !action.is_pair(); });
  });
}

// Returns what the algorithm makes of the costs of a schedule of the same placement, if that is
// shorter; else the schedule.
Result<Schedule> ShorterForCosts(const Algorithm& algorithm, ScheduleParams params,
                                 Schedule schedule) {
  const bool any_backward = std::ranges::any_of(
      schedule.backward, [](StageBackward each) { return each != StageBackward::kNone; });
  if (!any_backward || !ComputesOnly(schedule)) return schedule;
  const Untrained untrained = std::exchange(params.untrained, {});
  params.costs = CostsWithoutBackward(schedule, CostsOf(params, schedule.placement));
  const auto made = GenerateTrained(algorithm, params);
  if (!made || !ComputesOnly(*made)) return schedule;
  PENSTOCK_TRY(Schedule other, WithoutBackward(*made, untrained));
  const Problem problem = {.placement = schedule.placement,
                           .costs = *params.costs,
                           .indices = schedule.indices(),
                           .slices = schedule.slices};
  const double limit = params.memory_limit.value_or(kNever);
  const LanePrice before = PriceLanes(problem, schedule.lanes);
  const LanePrice after = PriceLanes(problem, other.lanes);
  const bool fits = after.peak_memory <= std::max(limit, before.peak_memory) * (1 + kRounding);
  return fits && after.makespan < before.makespan * (1 - kRounding) ? std::move(other)
                                                                    : std::move(schedule);
}

}  // namespace

Result<Schedule> Generate(std::string_view name, const ScheduleParams& params) {
  PENSTOCK_TRY(const Algorithm* algorithm, FindAlgorithm(name));
  PENSTOCK_TRY(Schedule schedule, GenerateTrained(*algorithm, params));
  if (params.untrained.empty()) return schedule;
  PENSTOCK_TRY(schedule, WithoutBackward(schedule, params.untrained));
  return ShorterForCosts(*algorithm, params, std::move(schedule));
}

}  // namespace penstock
