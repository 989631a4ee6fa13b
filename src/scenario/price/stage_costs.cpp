#include "scenario/price/stage_costs.h"

#include <algorithm>
#include <map>

#include "base/divide_layers.h"
#include "base/index.h"
#include "base/text/numbers.h"
#include "base/text/quote.h"
#include "scenario/price/next_to_file.h"
#include "scenario/price/params.h"
#include "scenario/price/unlike_stages.h"
#include "schedule/cost_files/layer_costs.h"
#include "schedule/pricing/microbatch_lengths.h"
#include "schedule/pricing/rank_speed.h"

namespace penstock {
namespace {

Result<std::pair<int, double>> ParseSlowRank(const std::string& text) {
  const std::size_t equals = text.find('=');
  if (equals != std::string::npos) {
    const auto rank = ParseInt(text.substr(0, equals));
    const auto factor = ParseNumber(text.substr(equals + 1));
    if (rank && factor) return std::pair(*rank, *factor);
  }
  return InvalidParameter("slow_rank", "{}: give a rank and its factor (3=1.2)", Quote(text));
}

// Refuses links with a bandwidth where messages have no size.
Status CheckLinks(const Scenario& scenario, const Topology& links, const Costs& costs) {
  for (const LinkLevel& level : links.levels) {
    if (level.bandwidth == 0 || costs.message_bytes > 0) continue;
    if (!scenario.topology) {
      return InvalidParameter("bandwidth", "has no effect without a size; give `message_bytes`");
    }
    return InvalidParameter("topology", ": level {} has a bandwidth; give `message_bytes`",
                            Quote(level.name));
  }
  return {};
}

Result<Costs> CostsOfLikeStages(const Scenario& scenario, const CostShape& shape) {
  PENSTOCK_TRY(const ModelOnCluster model, scenario.Load());
  if (!model.cluster.groups.empty() && shape.replicas > 1) {
    return InvalidParameter("device", "{}: two chains of stages have no price on unlike devices",
                            *scenario.device);
  }
  const int vocabulary_ranks = scenario.shards_vocabulary() ? shape.ranks : 0;
  return CostsOfChains(model,
                       {.stages = shape.stages,
                        .slices = shape.slices,
                        .ranks = shape.rank_of_stage,
                        .vocabulary_ranks = vocabulary_ranks},
                       shape.replicas);
}

// Refuses what would replace the links between sites.
Status CheckLinksOfSites(const Scenario& scenario) {
  const std::pair<const char*, bool> given[] = {{"comm", scenario.comm.has_value()},
                                                {"bandwidth", scenario.bandwidth.has_value()},
                                                {"topology", scenario.topology.has_value()}};
  for (const auto& [field, is_given] : given) {
    if (!is_given) continue;
    return InvalidParameter(field, ": `sites` determine the links; leave one of the two out");
  }
  if (!HasUnlikeStages(scenario)) return {};
  return InvalidParameter("sites", "{}: stages with devices of their own have no price over sites",
                          *scenario.sites);
}

// Returns `rule`, or if it prices a pair of a stage's F and B below the least part of their times
// that `costs` has, the most that either gives for a stage.
OverlapRule NoFasterThan(const Costs& costs, const OverlapRule& rule) {
  const double least = costs.overlap.factor;
  double most = least;
  bool is_faster = false;
  for (const StageCosts& stage : costs.stages) {
    const double both = stage.forward + stage.Backward();
    if (!(both > 0)) continue;
    const double part = rule.Price(stage.forward, stage.Backward()) / both;
    is_faster = is_faster || part < least;
    most = std::max(most, part);
  }
  return is_faster ? OverlapRule{OverlapRule::Kind::kFactor, most} : rule;
}

Result<Costs> CostsOfModelStages(const Scenario& scenario, const ScheduleParams& params,
                                 const CostShape& shape) {
  PENSTOCK_TRY(Costs costs, HasUnlikeStages(scenario) ? CostsOfUnlikeStages(scenario, shape)
                                                      : CostsOfLikeStages(scenario, shape));
  if (scenario.sites.value_or(1) > 1) {
    PENSTOCK_TRY_STATUS(CheckLinksOfSites(scenario));
  }
  if (scenario.comm) {
    costs.comm = scenario.comm->value;
    costs.topology = {};
  }
  if (scenario.topology || scenario.bandwidth) {
    PENSTOCK_TRY(costs.comm, LongestMessage(scenario, shape.ranks, costs.message_bytes));
  }
  costs.overlap = NoFasterThan(costs, params.overlap);
  return costs;
}

// Returns the numbers of layers of a profiled model's stages.
Result<std::vector<std::int64_t>> LayersOfStages(const ProfiledModel& model, int stages) {
  if (model.stage_layers.empty()) return DivideLayers(model.layers, stages);
  if (std::ssize(model.stage_layers) == stages) return model.stage_layers;
  return InvalidArgument("the run divides its layers among {} stages, the schedule has {}",
                         model.stage_layers.size(), stages);
}

Result<Costs> CostsOfProfiledStages(const ProfiledModel& model, const ScheduleParams& params,
                                    const CostShape& shape) {
  const auto layers = LayersOfStages(model, shape.stages);
  if (!layers) return InvalidParameter("machine", ": {}", layers.error().line());
  if (shape.slices > 1) {
    return InvalidParameter(
        "machine", ": its profile has whole microbatches, not {} slices; take another schedule",
        shape.slices);
  }
  Costs costs;
  costs.stages = StagesOfProfile(model.profile, *layers, shape.replicas);
  AddReplicas(model.profile, model.data, model.shards, costs.stages);
  costs.comm = params.comm;
  costs.overlap = params.overlap;
  costs.early_gradients = model.profile.early_gradients;
  return costs;
}

// The costs of the file that the schedule is next to, with the user's transfers.
Costs CostsOfFile(const Scenario& scenario, const ScheduleParams& params, const CostShape& shape) {
  Costs costs = CostsNextTo(*scenario.file_costs, shape);
  if (scenario.comm || scenario.bandwidth || scenario.topology) costs.comm = params.comm;
  if (scenario.overlap) costs.overlap = params.overlap;
  return costs;
}

}  // namespace

CostShape ShapeOf(const Placement& placement, int slices) {
  CostShape shape{placement.chain_length(), placement.replicas(), slices, placement.ranks()};
  for (int stage = 0; stage < placement.chain_length(); ++stage) {
    shape.rank_of_stage.push_back(placement.rank_of(stage));
  }
  for (int stage = 0; stage < placement.stages(); ++stage) {
    shape.ranks_of_chains.push_back(placement.rank_of(stage));
  }
  return shape;
}

Result<Costs> CostsOf(const Scenario& scenario, const ScheduleParams& params,
                      const Placement& placement, int slices) {
  if (scenario.costs_by_layer()) {
    return CostsByLayer(scenario, params, ShapeOf(placement, slices));
  }
  if (params.costs) {
    const std::size_t given = params.costs->stages.size();
    if (given == Index(placement.stages())) return *params.costs;
    return InvalidParameter("stage_costs",
                            "has {} stages, the schedule {}; give one entry per stage, or "
                            "layer_costs, which fit any number",
                            given, placement.stages());
  }
  Costs costs = Costs::Uniform(placement, slices, params.forward, params.backward_input,
                               params.backward_weight, params.comm, params.kept_for_weight);
  costs.overlap = params.overlap;
  return costs;
}

Result<Costs> CostsByLayer(const Scenario& scenario, const ScheduleParams& params,
                           const CostShape& shape) {
  if (scenario.prices_model()) return CostsOfModelStages(scenario, params, shape);
  if (scenario.profiled) return CostsOfProfiledStages(*scenario.profiled, params, shape);
  if (scenario.file_costs) return CostsOfFile(scenario, params, shape);
  Costs costs;
  auto stages =
      StagesOfLayers(scenario.layer_costs->entries, shape.stages, shape.replicas, shape.slices);
  if (!stages) return InvalidParameter("layer_costs", ": {}", stages.error().line());
  costs.stages = std::move(*stages);
  costs.comm = params.comm;
  costs.overlap = params.overlap;
  return costs;
}

bool ChangesSpeed(const Scenario& scenario) {
  return (scenario.launch && scenario.launch->value != 0) || !scenario.slow_rank.empty();
}

Status SetSpeed(const Scenario& scenario, const Placement& placement, Costs& costs) {
  if (scenario.launch) AddLaunches(costs, scenario.launch->value);
  std::map<int, double> factors;
  for (const std::string& text : scenario.slow_rank) {
    PENSTOCK_TRY(const auto slow, ParseSlowRank(text));
    if (!factors.insert(slow).second) {
      return InvalidParameter("slow_rank", "{}: rank {} is given twice", Quote(text), slow.first);
    }
  }
  const Status status = SlowDown(costs, placement, factors);
  if (!status) return InvalidParameter("slow_rank", ": {}", status.error().line());
  costs.offload_sharing = scenario.offload_sharing.value_or(1);
  if (costs.offload_sharing <= placement.ranks()) return {};
  return InvalidParameter("offload_sharing", "{}: the schedule has {} ranks; give at most as many",
                          costs.offload_sharing, placement.ranks());
}

Status SetTransfers(const Scenario& scenario, Costs& costs) {
  if (scenario.transfers) {
    PENSTOCK_TRY(costs.transfers, Of("transfers", ParseTransfers(*scenario.transfers)));
  }
  const bool scaled = std::ranges::any_of(
      costs.stages, [](const StageCosts& stage) { return stage.message_scale != 1; });
  if (scaled && costs.message_bytes == 0) {
    return InvalidParameter(scenario.stage_costs ? "stage_costs" : "layer_costs",
                            ": message_scale has no effect without a size; give `message_bytes`");
  }
  PENSTOCK_TRY(Topology links, LinksOf(scenario));
  if (links.empty()) return {};
  PENSTOCK_TRY_STATUS(CheckLinks(scenario, links, costs));
  costs.topology = std::move(links);
  return {};
}

Status SetLengths(const Scenario& scenario, const Schedule& schedule, Costs& costs) {
  PENSTOCK_TRY(const std::vector<double> lengths, LengthsOf(scenario));
  return ScaleByLength(costs, lengths,
                       {schedule.placement, schedule.microbatches, schedule.slices});
}

Status SetCollectives(const Scenario& scenario, const PassList& passes, CollectiveSizes sizes,
                      Costs& costs) {
  if (!scenario.collectives) return RefuseReduced(passes);
  if (scenario.prices_model()) {
    return InvalidParameter(
        "collectives", ": `model` determines them by `data_parallel` and `nodes`; leave them out");
  }
  for (const char* key : {"unshard", "reduce"}) {
    if (!passes.PriceOf(key)) continue;
    return InvalidParameter(
        "price", "{}: the times of collectives follow from their sizes; leave it out", key);
  }
  if (!sizes.in_bytes) {
    return InvalidParameter("collectives",
                            ": their sizes must be in bytes; give `activation_bytes`, or "
                            "stage_costs with units");
  }
  const std::optional<double> reduced = passes.PriceOf("reduced");
  if (!passes.PriceOf("gathered") && !reduced) {
    return InvalidParameter(
        "collectives",
        ": no size is given; give `price` gathered, and reduced if gradients differ");
  }
  const Status status =
      PriceCollectives(*scenario.collectives, sizes.activation,
                       reduced ? std::optional(*reduced / sizes.chunks) : std::nullopt, costs);
  if (status) return {};
  return InvalidParameter("collectives", ": {}", status.error().line());
}

}  // namespace penstock
