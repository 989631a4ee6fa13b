#include "scenario/price/build.h"

#include <algorithm>
#include <utility>

#include "base/index.h"
#include "base/text/quote.h"
#include "scenario/fields.h"
#include "scenario/machine/machine_file.h"
#include "scenario/own_fields.h"
#include "scenario/price/load_file.h"
#include "scenario/price/model.h"
#include "scenario/price/next_to_file.h"
#include "scenario/price/params.h"
#include "scenario/price/passes.h"
#include "scenario/price/stage_costs.h"
#include "scenario/price/unlike_stages.h"
#include "scenario/price/unused_fields.h"
#include "schedule/pricing/microbatch_lengths.h"
#include "schedule/validate/validate.h"

namespace penstock {
namespace {

// Sets the unit of memory, the memory limit and the size of a message.
Status SetUnits(const Scenario& scenario, PricedSchedule& chosen) {
  PENSTOCK_TRY(chosen.costs.message_bytes, MessageBytes(scenario, chosen.params.slices));
  if (scenario.in_bytes()) chosen.memory_unit = "B";
  if (scenario.activation_bytes) {
    const bool have_sizes = scenario.stage_costs || scenario.costs_by_layer();
    if ((have_sizes && !scenario.file_costs) || scenario.in_bytes()) {
      return InvalidParameter(
          "activation_bytes",
          "has no effect here: the costs say what each stage holds; leave it out");
    }
    PENSTOCK_TRY(chosen.activation, ActivationBytes(scenario));
    chosen.memory_unit = "B";
  }
  if (scenario.memory_limit) {
    PENSTOCK_TRY(const double limit, LimitOf(scenario, "memory_limit", *scenario.memory_limit));
    chosen.memory_limit = limit * chosen.activation;
  }
  return {};
}

// The bytes of weights, gradients and optimizer state by rank.
std::vector<double> StatesOf(const Costs& costs, const Placement& placement) {
  std::vector<double> states(Index(placement.ranks()));
  for (int stage = 0; stage < placement.stages(); ++stage) {
    const StageCosts& each = costs.stages[Index(stage)];
    states[Index(placement.rank_of(stage))] += each.weights + each.gradients + each.optimizer;
  }
  return states;
}

// Returns where the costs are from, and whether the machine has a core for each rank.
std::string DescribeProfile(const StageProfile& profile, int ranks) {
  std::string text = fmt::format("times were measured by 'penstock profile' on {} core{}",
                                 profile.cores, profile.cores == 1 ? "" : "s");
  if (ranks * profile.threads > profile.cores) {
    text +=
        fmt::format(";\nthese ranks need {}, so they take longer there", ranks * profile.threads);
  }
  return text;
}

// Sets what a model determines in addition to the costs: the unit of time and the memory limit.
Status DescribeCosts(const Scenario& scenario, const Costs& costs, PricedSchedule& chosen) {
  if (scenario.file_costs) chosen.time_unit = scenario.file_costs->time_unit;
  if (scenario.time_unit) chosen.time_unit = *scenario.time_unit;
  if (scenario.profiled) {
    chosen.about = DescribeProfile(scenario.profiled->profile, chosen.schedule.ranks());
  }
  if (!scenario.prices_model()) return {};
  if (chosen.schedule.vocabulary && !scenario.shards_vocabulary()) {
    return InvalidParameter(
        "model",
        ": it does not say on which ranks the file's sharded vocabulary is; give the file without "
        "these actions and add `pass` vocabulary");
  }
  PENSTOCK_TRY(const ModelOnCluster model, scenario.Load());
  const Placement& placement = chosen.schedule.placement;
  PENSTOCK_TRY_STATUS(CheckRanks(model, placement.ranks()));
  const std::vector<double> states = StatesOf(costs, placement);
  chosen.devices = placement.ranks() * static_cast<int>(model.ranks_per_stage());
  if (HasUnlikeStages(scenario)) {
    PENSTOCK_TRY(chosen.devices, DevicesOfUnlikeStages(scenario, placement.stages()));
    if (chosen.devices > model.cluster.devices()) {
      return InvalidParameter("stage_tensor", ": the stages have {} devices, `nodes` {}",
                              chosen.devices, model.cluster.devices());
    }
  }
  if (scenario.nodes) chosen.idle_devices = model.cluster.devices() - chosen.devices;
  chosen.time_unit = "s";
  chosen.about = DescribeModel(model, states);
  if (chosen.idle_devices > 0) {
    chosen.about += fmt::format(";\n{} of {} devices are idle, and count in figures per device",
                                chosen.idle_devices, model.cluster.devices());
  }
  if (!scenario.remark.empty()) chosen.about += ";\n" + scenario.remark;
  chosen.data = model.data;
  chosen.model = model;
  if (!scenario.memory_limit) {
    chosen.memory_limit = MemoryLeft(model, states);
    chosen.device_memory = model.MemoryOf(0);
    for (int rank = 1; rank < placement.ranks(); ++rank) {
      chosen.device_memory = std::max(*chosen.device_memory, model.MemoryOf(rank));
    }
  }
  return {};
}

// Runs the passes, then converts the costs to the unit of memory.
Status SetCosts(const Scenario& scenario, Costs costs, PricedSchedule& chosen) {
  PENSTOCK_TRY(const PassList passes, PassesOf(scenario));
  Schedule& schedule = chosen.schedule;
  // Otherwise the size comes from a dump, or there is none.
  if (scenario.message_bytes) costs.message_bytes = chosen.costs.message_bytes;
  PENSTOCK_TRY_STATUS(SetTransfers(scenario, costs));
  PENSTOCK_TRY_STATUS(SetLengths(scenario, schedule, costs));
  chosen.mean_length =
      MeanLength(costs, {schedule.placement, schedule.microbatches, schedule.slices});
  PENSTOCK_TRY_STATUS(SetSpeed(scenario, schedule.placement, costs));
  PENSTOCK_TRY_STATUS(passes.SetPrices(schedule, costs));
  PENSTOCK_TRY_STATUS(SetCollectives(
      scenario, passes,
      {chosen.activation, !chosen.memory_unit.empty(), schedule.placement.chunks()}, costs));
  costs = CostsWithoutBackward(schedule, std::move(costs));
  PENSTOCK_TRY_STATUS(passes.Run(schedule, costs));
  costs.ScaleMemory(chosen.activation);
  PENSTOCK_TRY_STATUS(DescribeCosts(scenario, costs, chosen));
  chosen.costs = std::move(costs);
  chosen.has_steps = passes.Has("optimizer");
  chosen.has_collectives = passes.Has("sharding");
  // A changed schedule is no longer the algorithm's: its closed forms do not hold.
  if (!passes.passes.empty() || IsUntrained(schedule)) chosen.algorithm = nullptr;
  return {};
}

// Refuses costs of another number of stages than the algorithm has. The catalog refuses them too,
// but does not know the key for costs that fit any number.
Status CheckStageCosts(const Algorithm& algorithm, ScheduleParams asked) {
  if (!asked.costs) return {};
  const std::size_t given = asked.costs->stages.size();
  asked.costs.reset();
  const auto checked = CheckParams(algorithm, asked);
  if (!checked) return {};  // refused again with the costs
  const auto stages = Index(checked->ranks) * Index(checked->chunks * algorithm.supported.replicas);
  if (given == stages) return {};
  return InvalidParameter("stage_costs",
                          "has {} stages, schedule {} has {}; give one entry per stage, or "
                          "layer_costs, which fit any number",
                          given, algorithm.name, stages);
}

// Sets the limit to the memory that a model leaves, if the algorithm reads one and the user gave
// none. `checked` has the defaults filled in.
Status LimitByDevice(const Scenario& scenario, const Algorithm& algorithm,
                     const ScheduleParams& checked, ScheduleParams& asked) {
  if (!scenario.prices_model() || scenario.memory_limit || !algorithm.supported.memory_limit ||
      HasUnlikeStages(scenario)) {
    return {};
  }
  PENSTOCK_TRY(const ModelOnCluster model, scenario.Load());
  PENSTOCK_TRY(const std::vector<double> states,
               StatesByRank(model, PlacementOf(algorithm, checked), scenario.shards_vocabulary()));
  const double left = MemoryLeft(model, states);
  if (left == 0) {
    return InvalidArgument("{}: no memory is left for activations: {}", algorithm.name,
                           DescribeModel(model, states));
  }
  asked.memory_limit = left;
  asked.memory_unit = {"GiB", 0x1p-30};
  return {};
}

// Sets the costs to what searches plan with, for lengths, launches and slow ranks.
Status PlanWithSpeed(const Scenario& scenario, const Algorithm& algorithm,
                     const ScheduleParams& checked, ScheduleParams& asked) {
  PENSTOCK_TRY(const std::vector<double> lengths, LengthsOf(scenario));
  const bool scales = std::ranges::any_of(lengths, [](double length) { return length != 1; });
  if (!scales && !ChangesSpeed(scenario)) return {};
  const Placement placement = PlacementOf(algorithm, checked);
  if (!asked.costs) {
    PENSTOCK_TRY(const ScheduleParams params, ParamsOf(scenario));
    PENSTOCK_TRY(asked.costs, CostsOf(scenario, params, placement, checked.slices));
  }
  PENSTOCK_TRY_STATUS(
      ScaleByLength(*asked.costs, lengths, {placement, checked.microbatches, checked.slices}));
  asked.costs->by_slice.clear();
  return SetSpeed(scenario, placement, *asked.costs);
}

Result<PricedSchedule> BuildFile(const Scenario& scenario, const std::string& path) {
  PENSTOCK_TRY(LoadedFile loaded, LoadFile(scenario, path));
  Scenario with_unit = scenario;
  with_unit.file_in_bytes = !loaded.memory_unit.empty();
  if (scenario.frozen || scenario.adapters) {
    PENSTOCK_TRY(loaded.schedule, WithoutBackward(loaded.schedule, UntrainedOf(loaded.schedule)));
  }
  if (Status valid = RequireValid(loaded.schedule, path); !valid) {
    valid.error().message += " ('penstock validate' shows all)";
    return tl::unexpected(std::move(valid).error());
  }
  std::optional<FileCosts> own;
  if (loaded.costs) {
    own = FileCosts{*loaded.costs, loaded.schedule.placement, loaded.schedule.slices,
                    with_unit.file_in_bytes, loaded.time_unit};
  }
  PENSTOCK_TRY(PricedSchedule priced,
               Price(with_unit, std::move(loaded.schedule), std::move(loaded.costs)));
  if (!loaded.time_unit.empty()) priced.time_unit = loaded.time_unit;
  priced.file_costs = std::move(own);
  priced.reading = std::move(loaded.reading);
  if (scenario.pass.empty()) priced.measured = std::move(loaded.measured);
  return priced;
}

Result<PricedSchedule> BuildAlgorithm(const Scenario& scenario, const std::string& name,
                                      Given given) {
  PENSTOCK_TRY(const Algorithm* algorithm, FindAlgorithm(name));
  PENSTOCK_TRY(PricedSchedule made, Choose(scenario, *algorithm, given));
  made.label = name;
  PENSTOCK_TRY_STATUS(MakeSchedule(scenario, made));
  return made;
}

}  // namespace

Error About(const Candidate& candidate, Error error) {
  return candidate.options.empty() ? error : In(Quote(candidate.label()), std::move(error));
}

Result<Scenario> ScenarioOf(const Scenario& scenario, const Candidate& candidate) {
  Scenario own = scenario;
  if (scenario.compares && candidate.kind == Candidate::Kind::kAlgorithm) {
    PENSTOCK_TRY(const Algorithm* algorithm, FindAlgorithm(candidate.name));
    DropUnsupported(*algorithm, own);
  }
  PENSTOCK_TRY_STATUS(ApplyOwnFields(candidate.options, own));
  PENSTOCK_TRY_STATUS(FillFromMachine(own));
  return own;
}

Result<PricedSchedule> Choose(const Scenario& scenario, const Algorithm& algorithm, Given given) {
  PENSTOCK_TRY(ScheduleParams asked, ParamsOf(scenario));
  if (given == Given::kSupported) asked = DropUnsupported(algorithm, asked);
  // The figures show which schedules stay within it.
  if (given == Given::kAllButLimit && !algorithm.supported.memory_limit) asked.memory_limit.reset();
  PENSTOCK_TRY_STATUS(CheckStageCosts(algorithm, asked));
  PricedSchedule chosen;
  chosen.label = algorithm.name;
  chosen.algorithm = &algorithm;
  chosen.heeds_limit = algorithm.supported.memory_limit;
  PENSTOCK_TRY(chosen.params, CheckParams(algorithm, asked));
  if (scenario.costs_by_layer()) {
    const ScheduleParams& checked = chosen.params;
    PENSTOCK_TRY(
        asked.costs,
        CostsByLayer(scenario, checked, ShapeOf(PlacementOf(algorithm, checked), checked.slices)));
    asked.costs->by_slice.clear();  // searches plan with means
    PENSTOCK_TRY_STATUS(LimitByDevice(scenario, algorithm, checked, asked));
    PENSTOCK_TRY(chosen.params, CheckParams(algorithm, asked));
  }
  if (ChangesSpeed(scenario) || scenario.microbatch_lengths) {
    PENSTOCK_TRY_STATUS(PlanWithSpeed(scenario, algorithm, chosen.params, asked));
    PENSTOCK_TRY(chosen.params, CheckParams(algorithm, asked));
  }
  PENSTOCK_TRY_STATUS(SetUnits(scenario, chosen));
  return chosen;
}

Status MakeSchedule(const Scenario& scenario, PricedSchedule& chosen) {
  PENSTOCK_TRY(chosen.schedule, Generate(chosen.algorithm->name, chosen.params));
  PENSTOCK_TRY(const ScheduleParams params, ParamsOf(scenario));
  PENSTOCK_TRY(Costs costs,
               CostsOf(scenario, params, chosen.schedule.placement, chosen.schedule.slices));
  return SetCosts(scenario, std::move(costs), chosen);
}

Result<PricedSchedule> Price(const Scenario& scenario, Schedule schedule,
                             std::optional<Costs> costs) {
  PENSTOCK_TRY(const ScheduleParams params, ParamsOf(scenario));
  PricedSchedule priced;
  priced.params = params;
  priced.params.ranks = schedule.ranks();
  priced.params.chunks = schedule.placement.chunks();
  priced.params.microbatches = schedule.microbatches;
  priced.params.slices = schedule.slices;
  priced.params.steps = schedule.steps;
  priced.heeds_limit = scenario.memory_limit.has_value();
  priced.schedule = std::move(schedule);
  PENSTOCK_TRY_STATUS(SetUnits(scenario, priced));
  if (!costs) {
    PENSTOCK_TRY(costs,
                 CostsOf(scenario, params, priced.schedule.placement, priced.schedule.slices));
  }
  PENSTOCK_TRY_STATUS(SetCosts(scenario, std::move(*costs), priced));
  return priced;
}

Result<PricedSchedule> BuildOne(const Scenario& scenario, const Candidate& candidate,
                                const Purpose& purpose) {
  PENSTOCK_TRY(const Scenario own, ScenarioOf(scenario, candidate));
  // Who prices marks what is above the limit.
  const Given given = scenario.compares || purpose.prices ? Given::kAllButLimit : Given::kAll;
  PENSTOCK_TRY(PricedSchedule built, candidate.kind == Candidate::Kind::kFile
                                         ? BuildFile(own, candidate.name)
                                         : BuildAlgorithm(own, candidate.name, given));
  built.label = candidate.label();
  if (purpose.has_runs) {
    PENSTOCK_TRY(built.jitter, JitterOf(own));
    built.repeat = own.repeat;
  }
  return built;
}

Result<std::vector<PricedSchedule>> Build(const Scenario& scenario, const Purpose& purpose) {
  PENSTOCK_TRY_STATUS(CheckRanges(scenario));
  if (scenario.schedules.empty()) {
    return InvalidArgument(
        "no schedule is given: name one ('penstock schedules' lists them), or give a CSV file or "
        "a YAML configuration");
  }
  PENSTOCK_TRY(const auto reference, BuildReference(scenario, purpose));
  std::vector<PricedSchedule> all;
  for (const Candidate& candidate : scenario.schedules) {
    if (reference && all.size() == reference->candidate) {
      all.push_back(reference->built);
      continue;
    }
    auto built = reference ? BuildNextTo(*reference, scenario, candidate, purpose)
                           : BuildOne(scenario, candidate, purpose);
    if (!built) return tl::unexpected(About(candidate, std::move(built).error()));
    all.push_back(std::move(*built));
  }
  PENSTOCK_TRY_STATUS(RefuseUnusedPrices(scenario, purpose, all));
  return all;
}

}  // namespace penstock
