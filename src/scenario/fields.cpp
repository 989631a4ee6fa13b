#include "scenario/fields.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/notes.h"
#include "base/text/deprecated_names.h"
#include "scenario/model_fields.h"
#include "schedule/cost_files/topology_config.h"
#include "schedule/text/cost_text.h"
#include "schedule/text/text.h"
#include "simulate/runs/monte_carlo.h"
#include "simulate/steady_state.h"

namespace penstock {
namespace {

constexpr int kMostRuns = 1'000'000;

bool ReadsChunks(const Algorithm& algorithm, const Scenario& scenario) {
  return *scenario.chunks >= algorithm.supported.min_chunks &&
         *scenario.chunks <= algorithm.supported.max_chunks;
}
bool ReadsSlices(const Algorithm& algorithm, const Scenario& scenario) {
  return algorithm.supported.slices || *scenario.slices == 1;
}
bool ReadsSteps(const Algorithm& algorithm, const Scenario& scenario) {
  return algorithm.supported.steps || *scenario.steps == 1;
}
template <bool SupportedParameters::*parameter>
bool Reads(const Algorithm& algorithm, const Scenario&) {
  return algorithm.supported.*parameter;
}

std::vector<ScenarioField> ShapeFields() {
  const FieldGroup kGroup = FieldGroup::kShape;
  return {
      {.name = "ranks",
       .member = &Scenario::ranks,
       .group = kGroup,
       .value_name = "N",
       .help = "Pipeline ranks (default 4)",
       .short_name = "p",
       .least = 1},
      {.name = "chunks",
       .member = &Scenario::chunks,
       .group = kGroup,
       .value_name = "N",
       .help = "Stages per rank (default: the algorithm's)",
       .short_name = "v",
       .least = 1,
       .supported = &ReadsChunks},
      {.name = "microbatches",
       .member = &Scenario::microbatches,
       .group = kGroup,
       .value_name = "N",
       .help = "Microbatches per batch (default 8), of each replica if there are several "
               "(`data_parallel`)",
       .short_name = "m",
       .least = 1},
      {.name = "group",
       .member = &Scenario::group,
       .group = kGroup,
       .value_name = "N",
       .help = "Microbatches in flight at a time (interleaved)",
       .least = 1,
       .read_by = kAlgorithm,
       .supported = &Reads<&SupportedParameters::group>},
      {.name = "slices",
       .member = &Scenario::slices,
       .group = kGroup,
       .value_name = "N",
       .help = "Slices of a microbatch along the sequence",
       .least = 1,
       .read_by = kAlgorithm | kCsv,
       .supported = &ReadsSlices},
      {.name = "waves",
       .member = &Scenario::waves,
       .group = kGroup,
       .value_name = "N",
       .help = "Waves (hanayo)",
       .least = 1,
       .read_by = kAlgorithm,
       .supported = &Reads<&SupportedParameters::waves>},
      {.name = "steps",
       .member = &Scenario::steps,
       .group = kGroup,
       .value_name = "N",
       .help = "Batches, for schedules without a flush",
       .least = 1,
       .read_by = kAlgorithm | kCsv,
       .supported = &ReadsSteps},
      {.name = "split",
       .member = &Scenario::split,
       .group = kGroup,
       .value_name = "",
       .help = "Split backward into I and W, if the algorithm has both forms",
       .read_by = kAlgorithm,
       .supported = &Reads<&SupportedParameters::split>},
      {.name = "objective",
       .member = &Scenario::objective,
       .group = kGroup,
       .value_name = "WHAT",
       .help = "What a search shortens: makespan (default), or span, the longest time from a "
               "rank's first to its last action, which counts if steps do not wait for all ranks",
       .choices = List(kObjectiveNames),
       .read_by = kAlgorithm,
       .supported = &Reads<&SupportedParameters::objective>},
  };
}

std::vector<ScenarioField> FileFields() {
  const FieldGroup kGroup = FieldGroup::kFiles;
  return {
      {.name = "replicas",
       .member = &Scenario::replicas,
       .group = kGroup,
       .value_name = "N",
       .help = "Replicas of the model in a CSV file (default 1)",
       .least = 1,
       .read_by = kCsv},
      {.name = "weight_policy",
       .member = &Scenario::weight_policy,
       .group = kGroup,
       .value_name = "POLICY",
       .help = "Weight policy of a CSV file: flush, stashed or double-buffered (default flush)",
       .choices = List(kWeightPolicyNames),
       .read_by = kCsv},
      {.name = "iteration",
       .member = &Scenario::iteration,
       .group = kGroup,
       .value_name = "N",
       .help = "Step of a trace or of Primus's dumps (default: the last complete one)",
       .read_by = kDump | kTrace},
      {.name = "trace_rule",
       .member = &Scenario::trace_rule,
       .group = kGroup,
       .value_name = "FILE",
       .help = "Which events of a trace are the pipeline's (default: those of torch or "
               "Megatron-LM)",
       .read_by = kTrace},
  };
}

std::vector<ScenarioField> CostFields() {
  const FieldGroup kGroup = FieldGroup::kCosts;
  const int kOrders = kSearches | kPasses;  // what costs an action may change its place
  return {
      {.name = "cost",
       .member = &Scenario::cost,
       .group = kGroup,
       .value_name = "F,I,W[,KEPT]",
       .help = "Times of one rank and microbatch: forward, backward for the input, backward for "
               "the weights; one number stands for all three (default 1,1,1). A fourth number is "
               "the part of the activations that W keeps after I (default 1)",
       .is_joined = true,
       .ordered_by = kOrders,
       .with_model = WithModel::kNotWith},
      {.name = "stage_costs",
       .member = &Scenario::stage_costs,
       .group = kGroup,
       .value_name = "",
       .help = "Costs per stage, if stages differ: a list of maps",
       .in_candidates = false},
      {.name = "layer_costs",
       .member = &Scenario::layer_costs,
       .group = kGroup,
       .value_name = "",
       .help = "Costs per layer, for any number of stages: a list of maps",
       .in_candidates = false},
      {.name = "comm",
       .member = &Scenario::comm,
       .group = kGroup,
       .value_name = "T",
       .help = "Latency of a transfer between ranks, in the unit of `cost`; with `model`, a time "
               "with its unit (5ms)",
       .ordered_by = kOrders},
      {.name = "bandwidth",
       .member = &Scenario::bandwidth,
       .group = kGroup,
       .value_name = "X",
       .help = "Bandwidth of the link of each rank, in bytes per unit of time (per second with "
               "`model`); messages on it take turns",
       .least = 0,
       .ordered_by = kOrders},
      {.name = "overlap",
       .member = &Scenario::overlap,
       .group = kGroup,
       .value_name = "RULE",
       .help = "Time of an overlapped forward and backward: max, sum or a factor of F + B",
       .choices = List(kOverlapNames),
       .ordered_by = kOrders},
      {.name = "launch",
       .member = &Scenario::launch,
       .group = kGroup,
       .value_name = "T",
       .help = "Time that every F, I, W, B and RECOMPUTE takes in addition, in the unit of "
               "`cost`; with `model`, a time with its unit (5us)",
       .ordered_by = kOrders},
      {.name = "slow_rank",
       .member = &Scenario::slow_rank,
       .group = kGroup,
       .value_name = "RANK=FACTOR",
       .help = "A rank that takes FACTOR times as long for all its actions (3=1.2); repeatable",
       .ordered_by = kOrders},
      {.name = "transfers",
       .member = &Scenario::transfers,
       .group = kGroup,
       .value_name = "HOW",
       .help = "What ranks do while messages are in flight: asynchronous (default), blocking "
               "(wait until results have arrived; default with `implementation` megatron) or "
               "batched (send and receive together, as Megatron-LM does)",
       .choices = List(kTransfersNames),
       .ordered_by = kPasses},
      {.name = "offload_sharing",
       .member = &Scenario::offload_sharing,
       .group = kGroup,
       .value_name = "N",
       .help = "Consecutive ranks that share one link to the slower pool in each direction "
               "(default 1)",
       .least = 1,
       .ordered_by = kPasses},
      {.name = "microbatch_lengths",
       .member = &Scenario::microbatch_lengths,
       .group = kGroup,
       .value_name = "X,...",
       .help = "Relative lengths of the microbatches, repeated if there are fewer (1,0.5,2): "
               "times, activations and messages scale with them",
       .is_joined = true,
       .ordered_by = kOrders},
      {.name = "memory_limit",
       .member = &Scenario::memory_limit,
       .group = kGroup,
       .value_name = "LIMIT",
       .help = "Memory limit per rank: activations of one rank and microbatch, or a size (6GiB) "
               "if the costs are in bytes",
       .ordered_by = kSearches},
      {.name = "activation_bytes",
       .member = &Scenario::activation_bytes,
       .group = kGroup,
       .value_name = "SIZE",
       .help = "Size of the activations of one rank and microbatch (4GiB); memory is then in bytes",
       .ordered_by = kPasses,
       .with_model = WithModel::kNotWith},
      {.name = "message_bytes",
       .member = &Scenario::message_bytes,
       .group = kGroup,
       .value_name = "SIZE",
       .help = "Size of the tensor between two stages for a microbatch (16MiB)",
       .ordered_by = kNobody,
       .with_model = WithModel::kNotWith},
      {.name = "topology",
       .member = &Scenario::topology,
       .group = kGroup,
       .value_name = "",
       .help = "Levels of links between ranks in place of `comm`: a list of maps",
       .in_candidates = false},
      {.name = "collectives",
       .member = &Scenario::collectives,
       .group = kGroup,
       .value_name = "",
       .help = "Replicas and links from which the times of UNSHARD and REDUCE_GRAD follow: a map",
       .in_candidates = false},
      {.name = "time_unit",
       .member = &Scenario::time_unit,
       .group = kGroup,
       .value_name = "s",
       .help = "s if the costs are seconds, which tables and pages then show",
       .choices = {"s"},
       .in_candidates = false},
  };
}

std::vector<ScenarioField> PassFields() {
  const FieldGroup kGroup = FieldGroup::kPasses;
  return {
      {.name = "pass",
       .member = &Scenario::pass,
       .group = kGroup,
       .value_name = "PASS",
       .help = "Transform the schedule by passes, in this order ('penstock schedules --passes' "
               "lists them); commas separate several"},
      {.name = "price",
       .member = &Scenario::price,
       .group = kGroup,
       .value_name = "KEY=X",
       .help = "Costs of actions that passes add (listed there too); commas separate several",
       .ordered_by = kPasses},
  };
}

std::vector<ScenarioField> RunFields() {
  const FieldGroup kGroup = FieldGroup::kRuns;
  return {
      {.name = "jitter",
       .member = &Scenario::jitter,
       .group = kGroup,
       .value_name = "CV",
       .help = "Also run with random times (lognormal, the costs are their means) and add mean, "
               "median and 95th percentile of the makespan. CV is the standard deviation over the "
               "mean"},
      {.name = "seed",
       .member = &Scenario::seed,
       .group = kGroup,
       .value_name = "N",
       .help = "Seed of the random times (default 0)",
       .least = 0},
      {.name = "runs",
       .member = &Scenario::runs,
       .group = kGroup,
       .value_name = "N",
       .help = fmt::format("Number of runs with jitter (default {})", MonteCarloOptions().runs),
       .least = 1,
       .most = kMostRuns},
      {.name = "repeat",
       .member = &Scenario::repeat,
       .group = kGroup,
       .value_name = "N",
       .help = "Also run N consecutive steps and print the time of one in steady state",
       .least = 2,
       .most = kMostRepeats},
  };
}

std::vector<ScenarioField> AllFields() {
  std::vector<ScenarioField> all;
  for (std::vector<ScenarioField> group :
       {ShapeFields(), FileFields(), CostFields(), ModelFields(), PlaceFields(), SizeFields(),
        ImplementationFields(), PassFields(), RunFields()}) {
    std::ranges::move(group, std::back_inserter(all));
  }
  for (const auto& [former, current] : kFormerFieldNames) {
    std::ranges::find(all, current, &ScenarioField::name)->former_name = former;
  }
  return all;
}

}  // namespace

std::span<const ScenarioField> ScenarioFields() {
  static const std::vector<ScenarioField> fields = AllFields();
  return fields;
}

const ScenarioField* FindField(std::string_view name) {
  const auto found = std::ranges::find(ScenarioFields(), name, &ScenarioField::name);
  return found == ScenarioFields().end() ? nullptr : &*found;
}

std::string_view CurrentFieldName(std::string_view name) {
  for (const ScenarioField& field : ScenarioFields()) {
    if (field.former_name.empty() || field.former_name != name) continue;
    NoteFormerName(name, field.name);
    return field.name;
  }
  return name;
}

}  // namespace penstock
