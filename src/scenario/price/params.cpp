#include "scenario/price/params.h"

#include <algorithm>

#include "base/from_chars.h"
#include "base/index.h"
#include "base/text/numbers.h"
#include "base/text/quote.h"
#include "base/text/split.h"
#include "base/units.h"
#include "interop/traces/recorded_run.h"
#include "scenario/fields.h"
#include "schedule/pricing/microbatch_lengths.h"
#include "schedule/text/cost_text.h"
#include "simulate/noise/jitter.h"

namespace penstock {
namespace {

// Refuses `value`, in quotes or as a number, if its status is an error.
Status Check(std::string_view field, const std::string& value, const Status& status) {
  if (status) return {};
  return InvalidParameter(field, "{}: {}", value, status.error().line());
}

// Reads "4GiB", or a number of bytes.
Result<double> ParseSize(const std::string& text, std::string_view field) {
  const Result<double> plain = ParseNumber(text);
  const Result<std::int64_t> bytes = ParseBytes(text);
  const double size = plain ? *plain : bytes ? static_cast<double>(*bytes) : 0;
  if (!(size > 0)) {
    return InvalidParameter(field, "{}: give bytes, or a number with its unit (4GiB)", Quote(text));
  }
  PENSTOCK_TRY_STATUS(Check(field, Quote(text), CheckMemory(size)));
  return size;
}

// Returns the unit that the text of a limit is in: "6GiB" is `limit` of the costs' units.
MemoryUnit UnitOf(std::string_view text, double limit) {
  double number = 0;
  const auto [end, error] = FromChars(text.data(), text.data() + text.size(), number);
  std::string_view name = text.substr(Index(end - text.data()));
  name.remove_prefix(std::min(name.find_first_not_of(' '), name.size()));
  return {std::string(name), number / limit};
}

// The largest message_scale of the costs per stage or layer.
double LargestScale(const Scenario& scenario) {
  double largest = scenario.stage_costs || scenario.layer_costs ? 0 : 1;
  for (const auto* list : {&scenario.stage_costs, &scenario.layer_costs}) {
    if (!*list) continue;
    for (const LayerGroup& entry : (*list)->entries) {
      largest = std::max(largest, entry.costs.message_scale);
    }
  }
  return largest;
}

Status CheckTimes(const Scenario& scenario) {
  if (scenario.time_unit.value_or("s") != "s") {
    return InvalidParameter("time_unit", "{}: give s, or leave it out", Quote(*scenario.time_unit));
  }
  for (const auto& [field, time] :
       {std::pair("comm", &scenario.comm), {"launch", &scenario.launch}}) {
    if (!*time) continue;
    PENSTOCK_TRY_STATUS(CheckUnit(field, **time, PlainTimeOf(scenario)));
    PENSTOCK_TRY_STATUS(Check(field, (*time)->text, CheckTime((*time)->value)));
  }
  return {};
}

// Sets what the fields of costs say.
Status SetCosts(const Scenario& scenario, ScheduleParams& params) {
  if (scenario.cost) {
    PENSTOCK_TRY(const UniformCost times, Of("cost", ParseCost(*scenario.cost)));
    params.forward = times.forward;
    params.backward_input = times.backward_input;
    params.backward_weight = times.backward_weight;
    params.kept_for_weight = times.kept_for_weight;
  }
  if (scenario.overlap) {
    PENSTOCK_TRY(params.overlap, Of("overlap", ParseOverlap(*scenario.overlap)));
  }
  if (!scenario.stage_costs) return {};
  Costs& costs = params.costs.emplace();
  for (const LayerGroup& entry : scenario.stage_costs->entries) costs.stages.push_back(entry.costs);
  costs.comm = params.comm;
  costs.overlap = params.overlap;
  return {};
}

}  // namespace

PlainTime PlainTimeOf(const Scenario& scenario) {
  if (scenario.prices_model() && !scenario.time_unit) return PlainTime::kAmbiguous;
  const bool recorded = std::ranges::any_of(scenario.schedules, [](const Candidate& candidate) {
    return candidate.kind == Candidate::Kind::kFile && IsRecordedRun(candidate.name);
  });
  const bool in_seconds = scenario.time_unit || (recorded && !scenario.has_costs()) ||
                          (scenario.file_costs && !scenario.file_costs->time_unit.empty());
  return in_seconds ? PlainTime::kSeconds : PlainTime::kUnitOfCosts;
}

Result<ScheduleParams> ParamsOf(const Scenario& scenario) {
  PENSTOCK_TRY_STATUS(CheckRanges(scenario));
  ScheduleParams params;
  params.ranks = scenario.ranks.value_or(params.ranks);
  if (scenario.prices_model() && !scenario.ranks) {
    PENSTOCK_TRY(const ModelOnCluster model, scenario.Load());
    params.ranks = PipelineRanks(model);
  }
  params.chunks = scenario.chunks.value_or(params.chunks);
  params.microbatches = scenario.microbatches.value_or(params.microbatches);
  params.group = scenario.group.value_or(params.group);
  params.slices = scenario.slices.value_or(params.slices);
  params.waves = scenario.waves.value_or(params.waves);
  params.steps = scenario.steps.value_or(params.steps);
  params.split = scenario.split.value_or(false);
  PENSTOCK_TRY(params.untrained, UntrainedOf(scenario));
  PENSTOCK_TRY_STATUS(CheckTimes(scenario));
  if (scenario.comm) params.comm = scenario.comm->value;
  PENSTOCK_TRY(const Topology links, LinksOf(scenario));
  if (!links.empty()) {
    PENSTOCK_TRY(const double bytes, MessageBytes(scenario, params.slices));
    PENSTOCK_TRY(params.comm, LongestMessage(scenario, params.ranks, bytes));
  }
  if (scenario.objective) {
    PENSTOCK_TRY(params.objective, Of("objective", ParseObjective(*scenario.objective)));
  }
  PENSTOCK_TRY_STATUS(SetCosts(scenario, params));
  if (scenario.memory_limit) {
    PENSTOCK_TRY(params.memory_limit, LimitOf(scenario, "memory_limit", *scenario.memory_limit));
    params.memory_unit = UnitOf(*scenario.memory_limit, *params.memory_limit);
  }
  PENSTOCK_TRY_STATUS(LengthsOf(scenario));
  PENSTOCK_TRY_STATUS(JitterOf(scenario));
  return params;
}

Result<double> LimitOf(const Scenario& scenario, const std::string& field,
                       const std::string& text) {
  const std::string quoted = Quote(text);
  const Result<double> count = ParseNumber(text);
  const Result<std::int64_t> bytes = ParseBytes(text);
  if (!count && !bytes) {
    return InvalidParameter(
        field, "{}: give activations of one rank and microbatch, or a size with its unit (6GiB)",
        quoted);
  }
  const double limit = count ? *count : static_cast<double>(*bytes);
  if (!(limit > 0)) return InvalidParameter(field, "{}: more than 0 is needed", quoted);
  PENSTOCK_TRY_STATUS(Check(field, quoted, CheckMemory(limit)));
  if (scenario.in_bytes()) {
    if (bytes) return limit;
    return InvalidParameter(
        field, "{}: the stages' activations are in bytes; give a size with its unit (6GiB)",
        quoted);
  }
  if (count) return limit;
  if (!scenario.activation_bytes) {
    return InvalidParameter(
        field,
        "{}: the costs are not in bytes; give activations of one rank and microbatch (6), or their "
        "size by `activation_bytes`",
        quoted);
  }
  PENSTOCK_TRY(const double activation, ActivationBytes(scenario));
  return limit / activation;
}

Result<Untrained> UntrainedOf(const Scenario& scenario) {
  Untrained untrained;
  if (scenario.frozen) {
    PENSTOCK_TRY(untrained.frozen, Of("frozen", ParseStages(*scenario.frozen)));
  }
  if (scenario.adapters) {
    PENSTOCK_TRY(untrained.adapters, Of("adapters", ParseStages(*scenario.adapters)));
  }
  return untrained;
}

Result<double> ActivationBytes(const Scenario& scenario) {
  return ParseSize(*scenario.activation_bytes, "activation_bytes");
}

Result<double> MessageBytes(const Scenario& scenario, int slices) {
  if (!scenario.message_bytes) return 0;
  PENSTOCK_TRY(const double size, ParseSize(*scenario.message_bytes, "message_bytes"));
  return size / slices;
}

Result<Topology> LinksOf(const Scenario& scenario) {
  if (!scenario.topology && !scenario.bandwidth) return Topology();
  const char* const both = scenario.topology && scenario.bandwidth ? "bandwidth"
                           : scenario.topology && scenario.comm    ? "comm"
                                                                   : nullptr;
  if (both != nullptr) {
    return InvalidParameter(
        both, "has no effect here: the levels of `topology` have their own; leave it out");
  }
  if (scenario.topology) return *scenario.topology;
  if (*scenario.bandwidth == 0) {
    return InvalidParameter("bandwidth", "0: more than 0 is needed");
  }
  LinkLevel level;
  level.name = "link";
  level.latency = scenario.comm ? scenario.comm->value : 0;
  level.bandwidth = *scenario.bandwidth;
  return Topology{{level}};
}

Result<double> LongestMessage(const Scenario& scenario, int ranks, double bytes) {
  PENSTOCK_TRY(const Topology links, LinksOf(scenario));
  const double time = links.LongestTime(ranks, bytes * LargestScale(scenario));
  const Status status = CheckTime(time);
  if (status) return time;
  return InvalidParameter(scenario.topology ? "topology" : "bandwidth",
                          ": the time of a message {}", status.error().line());
}

Result<std::vector<double>> LengthsOf(const Scenario& scenario) {
  std::vector<double> lengths;
  if (!scenario.microbatch_lengths) return lengths;
  for (const std::string& part : SplitAt(*scenario.microbatch_lengths, ',')) {
    const auto length = ParseNumber(part);
    if (!length) {
      return InvalidParameter("microbatch_lengths", "{}: give numbers (1,0.5,2)", Quote(part));
    }
    lengths.push_back(*length);
  }
  PENSTOCK_TRY_STATUS(CheckLengths(lengths));
  return lengths;
}

Result<std::optional<MonteCarloOptions>> JitterOf(const Scenario& scenario) {
  if (!scenario.jitter) return std::nullopt;
  MonteCarloOptions options;
  options.runs = scenario.runs.value_or(options.runs);
  options.seed = static_cast<std::uint64_t>(scenario.seed.value_or(0));
  PENSTOCK_TRY(options.jitter, Of("jitter", ParseNumber(*scenario.jitter)));
  if (options.jitter < 0 || options.jitter > kMostJitter) {
    return InvalidParameter("jitter", "{}: give 0 to {}", options.jitter, kMostJitter);
  }
  return options;
}

}  // namespace penstock
