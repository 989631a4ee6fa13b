#include "cost_model/model_costs.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "base/index.h"
#include "base/text/quote.h"
#include "cost_model/fsdp.h"
#include "cost_model/layer_work.h"
#include "cost_model/microbatch.h"
#include "cost_model/parameters.h"
#include "cost_model/rank_sizes.h"
#include "cost_model/roofline.h"
#include "model_spec/layout.h"
#include "model_spec/model_shape.h"
#include "schedule/pricing/collective_time.h"

namespace penstock {
namespace {

// The work of one of `ranks` equal shares of the rows of embedding and head.
struct VocabularyWork {
  Kernels embed, softmax, weight, embed_gradient;  // of EMBED, S, T and EMBED_GRAD
  double softmax_bytes = 0;                        // from S to T: fp32 logits
  double parameters = 0;
};

VocabularyWork WorkOfVocabulary(const ModelShape& shape, const Microbatch& batch, int ranks) {
  ModelShape of_rank = shape;
  of_rank.vocabulary = (shape.vocabulary + ranks - 1) / ranks;
  const Work logits = LogitsWork(of_rank, batch), embedding = EmbeddingWork(of_rank, batch);
  VocabularyWork shard;
  shard.embed = embedding.forward;
  shard.embed_gradient = embedding.backward_weight;
  shard.softmax = logits.forward;
  shard.softmax.insert(shard.softmax.end(), logits.backward_input.begin(),
                       logits.backward_input.end());
  shard.weight = logits.backward_weight;
  shard.softmax_bytes = batch.tokens() * RankSizes(of_rank, batch).vocabulary * kFp32ElementBytes;
  const double norm = static_cast<double>(shape.dim);  // on the last stage
  shard.parameters = (EmbeddingParameters(shape) + HeadParameters(shape) - norm) /
                     static_cast<double>(batch.tensor) / ranks;
  return shard;
}

Microbatch SliceOf(const Microbatch& batch, int slices, int slice) {
  Microbatch of_slice = batch;
  of_slice.sequence = batch.sequence / slices;
  of_slice.earlier = of_slice.sequence * slice;
  return of_slice;
}

// The kernels of F that the backward computes again.
Kernels Recomputed(const StagePart& part, const Recompute& recompute) {
  if (part.is_recomputed) return part.work.forward;
  Kernels again;
  if (!part.is_layer || recompute.method != Recompute::Method::kSelective) return again;
  for (const KernelCost& kernel : part.work.forward) {
    if ((kernel.modules & recompute.modules) != 0) again.push_back(kernel);
  }
  return again;
}

// Parameters that `replicas` replicas have copies of, on devices that are `stride` devices apart.
struct Replicated {
  double parameters = 0;
  int replicas = 1;
  int stride = 1;

  // The part that the other replicas have, once shards are gathered.
  double from_others() const { return parameters * (replicas - 1) / replicas; }
};

// Replicas divide the experts, so that fewer of them have copies of the same ones.
std::array<Replicated, 2> ReplicatedBy(const ModelOnCluster& model, const LayerRange& layers,
                                       double of_vocabulary) {
  ParameterCount count = ParametersOfStage(model.shape, layers, model.batch);
  count.others += of_vocabulary;
  const Mesh mesh = model.mesh(), experts = model.expert_mesh();
  const Replicated of_experts = {count.of_experts, experts.size(Axis::kData),
                                 experts.Stride(Axis::kData)};
  if (model.batch.profile.get().shards_over_context) {
    return {{{count.others, mesh.size(Axis::kData) * mesh.size(Axis::kContext),
              mesh.Stride(Axis::kContext)},
             of_experts}};
  }
  return {{{count.others, mesh.size(Axis::kData), mesh.Stride(Axis::kData)}, of_experts}};
}

// Bytes of a weight that replicas gather.
double GatheredBytes(const Microbatch& batch) {
  const Implementation& implementation = batch.profile.get();
  if (IsQuantized(batch.precision) && implementation.quantized_gather_bytes > 0) {
    return implementation.quantized_gather_bytes;
  }
  if (implementation.gathered_bytes > 0) return implementation.gathered_bytes;
  return StateFormatOf(batch).working;
}

// What replicas send until they have gathered weights, and have summed gradients.
struct ShardTimes {
  LinkUse gather, sum;
};

// The messages of a collective, by the links that its group has.
LinkUse UseOf(const CollectiveGroup& group, double seconds) {
  LinkUse use{.seconds = seconds};
  for (const LinkLevel& level : group.links.levels) {
    (level.name == "node" ? use.node : use.network) = seconds;
  }
  return use;
}

// Experts have fewer replicas; `zero_ranks` groups these as well.
Sharding ShardingOf(const ModelOnCluster& model, double replicas) {
  if (model.zero_ranks == 0) return {model.zero, replicas};
  const bool has_context = model.batch.profile.get().shards_over_context;
  const auto ranks = has_context ? model.ranks_per_stage() / model.batch.tensor : model.data;
  const auto all = static_cast<double>(ranks);
  return {model.zero, std::clamp(replicas * model.zero_ranks / all, 1.0, replicas)};
}

ShardTimes ShardTimesOf(const ModelOnCluster& model, const Replicated& each,
                        const Roofline& roofline) {
  const double reduced = StateFormatOf(model.batch).gradient;
  // With hybrid sharding, neighbors shard, and those with the same shard add their gradients.
  const int shards = static_cast<int>(ShardingOf(model, each.replicas).replicas);
  const CollectiveGroup group = roofline.GroupOf(shards, each.stride);
  const CollectiveGroup copies = roofline.GroupOf(each.replicas / shards, each.stride * shards);
  constexpr auto kRings = CollectiveAlgorithm::kHierarchical;
  const double summed = each.parameters * reduced;
  ShardTimes times = {
      UseOf(group, AllGatherTime(kRings, group, each.parameters * GatheredBytes(model.batch))),
      UseOf(group, ReduceScatterTime(kRings, group, summed))};
  times.sum += UseOf(copies, ReduceScatterTime(kRings, copies, summed / shards) +
                                 AllGatherTime(kRings, copies, summed / shards));
  return times;
}

ShardTimes ShardTimesOf(const ModelOnCluster& model, const std::array<Replicated, 2>& all,
                        const Roofline& roofline) {
  ShardTimes sum;
  for (const Replicated& each : all) {
    const ShardTimes times = ShardTimesOf(model, each, roofline);
    sum.gather += times.gather;
    sum.sum += times.sum;
  }
  return sum;
}

// The times of a microbatch, under which shards are sent.
struct MicrobatchTime {
  PartTime forward, backward;

  // The part of the device's FLOP/s that both reach together.
  double peak_part() const {
    const double seconds = forward.seconds + backward.seconds;
    return seconds > 0 ? (forward.at_peak + backward.at_peak) / seconds : 0;
  }
};

// Adds what F and I gather and sum of the shards of their layers.
void AddShards(const ModelOnCluster& model, const LayerRange& layers, const Roofline& roofline,
               const ShardCounts& counts, const MicrobatchTime& microbatch, StageCosts& costs) {
  if (counts.forward_gathers == 0) return;
  const double exposed = model.batch.profile.get().shards_exposed;
  const ShardTimes times = ShardTimesOf(model, ReplicatedBy(model, layers, 0), roofline);
  LinkUse backward;
  if (counts.backward_gathers > 0) backward += times.gather;
  if (counts.backward_sums > 0 && !model.batch.profile.lora) backward += times.sum;
  costs.forward += microbatch.forward.Exposed(times.gather, exposed);
  costs.backward_input += microbatch.backward.Exposed(backward, exposed);
}

// Returns `costs` with the times and the memory of F, I and W of slice `slice`, and adds the times
// to those of the microbatch. All slices together keep what the microbatch would.
StageCosts WithCompute(const ModelOnCluster& model, const LayerRange& layers,
                       const Roofline& roofline, const ShardCounts& counts, int slices, int slice,
                       StageCosts costs, MicrobatchTime& microbatch) {
  const KeptBytes kept = KeptByStage(model.shape, layers, model.batch, model.recompute);
  PartTime forward, input, weight;
  for (const StagePart& part :
       PartsOfStage(model.shape, layers, SliceOf(model.batch, slices, slice), model.recompute)) {
    forward.Add(roofline.TimeOf(part.work.forward), part.count);
    input.Add(roofline.TimeOf(part.work.backward_input), part.count);
    input.Add(roofline.TimeOf(Recomputed(part, model.recompute)), part.count);
    if (!model.batch.profile.lora) {
      weight.Add(roofline.TimeOf(part.work.backward_weight), part.count);
    }
  }
  PartTime backward = input;
  backward.Add(weight, 1);
  costs.forward = forward.seconds;
  costs.backward_input = input.seconds;
  costs.backward_weight = weight.seconds;
  AddShards(model, layers, roofline, counts, {forward, backward}, costs);
  // Activations move by a link of their own.
  const LinkUse offload{.seconds = roofline.OfHostLink(kept.offloaded / slices)};
  const double exposed = model.batch.profile.get().offload_exposed;
  costs.forward += forward.Exposed(offload, exposed);
  costs.backward_input += backward.Exposed(offload, exposed);
  microbatch.forward.Add(forward, 1);
  microbatch.backward.Add(backward, 1);
  if (layers.has_embedding()) {
    costs.backward_weight += std::exchange(costs.backward_input, 0);
  }
  costs.workspace = kept.transient / slices;
  costs.activation = kept.from_forward / slices;
  costs.activation_after_i = kept.after_input / slices;
  costs.recompute = costs.forward;
  const double checkpoint = layers.has_embedding() ? KeptFromForward(KeptByEmbedding(model.batch))
                                                   : HiddenBytes(model.shape, model.batch);
  costs.input_activation = checkpoint / slices;
  return costs;
}

StageCosts MeanOfSlices(const std::vector<StageCosts>& slices) {
  StageCosts mean = slices.front();
  for (double StageCosts::*time : {&StageCosts::forward, &StageCosts::backward_input,
                                   &StageCosts::backward_weight, &StageCosts::recompute}) {
    double sum = 0;
    for (const StageCosts& slice : slices) sum += slice.*time;
    mean.*time = sum / static_cast<double>(slices.size());
  }
  return mean;
}

// Seconds in which the host updates a device's parameters: it gets the gradients, its CPUs read and
// write the states as fast as the link of the device, and it sends the weights back. Two sockets
// with 8 channels of DDR4-3200 have 410 GB/s, and eight devices with PCIe 4 and 5 take 256 and 512.
double HostStep(const StateElements& elements, const StateFormat& format,
                const Roofline& roofline) {
  const double moved = elements.masters * (format.gradient + format.working);
  return roofline.OfHostLink(moved + StepBytes(elements, format));
}

// What passes add: the optimizer's step, and the collectives of shards. Gradients are summed under
// the backward of the last microbatch, and weights gathered under the forward of the first one.
void AddUpdateCosts(const ModelOnCluster& model, const std::array<Replicated, 2>& all,
                    const Roofline& roofline, const ShardCounts& counts,
                    const MicrobatchTime& microbatch, StageCosts& costs) {
  if (model.batch.profile.lora) return;
  const Implementation& implementation = model.batch.profile.get();
  const StateFormat format = StateFormatOf(model.batch);
  for (const Replicated& each : all) {
    const StateElements elements = ElementsOf(each.parameters, ShardingOf(model, each.replicas));
    const double on_host = model.batch.profile.offloaded_states;
    const double moved = implementation.bytes_per_step > 0
                             ? elements.masters * implementation.bytes_per_step
                             : StepBytes(elements, format);
    costs.step += (1 - on_host) * roofline.OfMemory(moved);
    costs.step += on_host * HostStep(elements, format, roofline);
    costs.gathered += each.from_others() * GatheredBytes(model.batch);
  }
  const ShardTimes times = ShardTimesOf(model, all, roofline);
  const double exposed = 1 - model.cluster.speeds.hidden_gradients;
  if (counts.step_gathers > 0) costs.unshard = microbatch.forward.Exposed(times.gather, exposed);
  if (counts.step_sums == 0) return;
  // Replicas that share nothing sum in two such collectives under the same backward.
  LinkUse sums = times.sum;
  if (model.zero == 0) sums += times.sum;
  costs.reduce = microbatch.backward.Exposed(sums, exposed) / (model.zero == 0 ? 2 : 1);
  // After the last backward, nothing is left to compute.
  if (counts.holds_gradients) costs.reduce = sums.seconds;
}

// Ranks that divide layers add the gradients of what they have copies of before their steps.
void AddSummedOnce(const ModelOnCluster& model, const LayerRange& layers, const Roofline& roofline,
                   StageCosts& costs) {
  const Implementation& implementation = model.batch.profile.get();
  if (implementation.summed_once == nullptr || model.batch.profile.lora) return;
  const double elements = implementation.summed_once(model.shape, layers, model.batch);
  if (elements == 0) return;
  costs.step += roofline.OfSum(elements * StateFormatOf(model.batch).gradient);
}

// Ranks that divide the tokens of samples add all their gradients, apart from the replicas.
void AddContextSum(const ModelOnCluster& model, const std::array<Replicated, 2>& all,
                   const Roofline& roofline, StageCosts& costs) {
  const Implementation& implementation = model.batch.profile.get();
  const Mesh mesh = model.mesh();
  const int ranks = mesh.size(Axis::kContext);
  if (ranks == 1 || implementation.shards_over_context || model.batch.profile.lora) return;
  double bytes = 0;
  for (const Replicated& each : all) {
    bytes += each.parameters * StateFormatOf(model.batch).gradient;
  }
  constexpr auto kRings = CollectiveAlgorithm::kHierarchical;
  const CollectiveGroup group = roofline.GroupOf(ranks, mesh.Stride(Axis::kContext));
  costs.step += ReduceScatterTime(kRings, group, bytes) + AllGatherTime(kRings, group, bytes);
}

// The first and the last stage add their gradients of a tied embedding before their steps.
void AddTiedGradients(const ModelOnCluster& model, const std::vector<LayerRange>& stages,
                      const Roofline& roofline, ModelCosts& costs) {
  const Implementation& implementation = model.batch.profile.get();
  const bool is_split = stages.front().has_embedding() && stages.back().has_logits();
  if (!implementation.sums_tied_gradients || !model.shape.tied || stages.size() == 1 || !is_split) {
    return;
  }
  const double bytes = static_cast<double>(model.shape.vocabulary) /
                       static_cast<double>(model.batch.tensor) *
                       static_cast<double>(model.shape.dim) * model.batch.element_bytes();
  const std::int64_t distance = model.site_ranks_per_stage() * (PipelineRanks(model) - 1);
  const double seconds = roofline.OfSumOfTwo(bytes, distance);
  costs.stages.front().step += seconds;
  costs.stages.back().step += seconds;
}

StateBytes AddStates(const ModelOnCluster& model, const std::array<Replicated, 2>& all,
                     const ShardCounts& counts, StageCosts& costs) {
  StateFormat format = StateFormatOf(model.batch);
  // FSDP2 shards masters only, and makes the weights that compute reads of them.
  const bool reshards = model.batch.profile.get().is_fsdp && counts.backward_gathers > 0;
  if (reshards && format.master > 0) format.working = 0;
  if (model.batch.profile.lora) format = {.working = format.working, .gradient = 0, .optimizer = 0};
  StateBytes states;
  for (const Replicated& each : all) {
    StateElements elements = ElementsOf(each.parameters, ShardingOf(model, each.replicas));
    if (counts.holds_gradients) elements.gradients = each.parameters;
    states = states + StatesOf(elements, format);
  }
  const double on_device = 1 - model.batch.profile.offloaded_states;
  states.optimizer *= on_device;
  states.weights = states.version + (states.weights - states.version) * on_device;
  costs.weights = states.weights;
  costs.version = states.version;
  costs.gradients = states.gradients;
  costs.optimizer = states.optimizer;
  return states;
}

void AddVocabulary(const VocabularyWork& shard, const Roofline& roofline, StageCosts& costs) {
  costs.embed = roofline.Seconds(shard.embed);
  costs.vocabulary_input = roofline.Seconds(shard.softmax);
  costs.vocabulary_weight = roofline.Seconds(shard.weight);
  costs.embed_gradient = roofline.Seconds(shard.embed_gradient);
  costs.softmax = shard.softmax_bytes;
}

// The links between the ranks of a pipeline that one site has, the innermost first.
std::vector<LinkLevel> LevelsOfSite(const ModelOnCluster& model, double latency) {
  const Cluster& cluster = model.cluster;
  const int group = static_cast<int>(model.site_ranks_per_stage());
  const int linked = cluster.linked_devices();
  LinkLevel node, network;
  node.name = "node";
  node.ranks = std::max(1, linked / group);
  node.bandwidth = cluster.device.link_bandwidth * cluster.speeds.link;
  network.name = "network";
  network.bandwidth = cluster.device.network_bandwidth * cluster.speeds.network;
  node.latency = network.latency = latency;
  if (cluster.devices_per_site() <= linked) return {node};
  if (group >= linked || linked % group != 0) return {network};
  return {node, network};
}

// The least time between two messages of a rank.
double ShortestAction(const ModelCosts& costs) {
  double shortest = std::numeric_limits<double>::infinity();
  for (const StageCosts& stage : costs.by_slice.empty() ? costs.stages : costs.by_slice) {
    shortest = std::min(shortest, stage.forward);
    if (stage.backward_input > 0) shortest = std::min(shortest, stage.backward_input);
  }
  return shortest;
}

// Empty if all neighbors are on the same kind of link, and a message has left before the next one
// can, so that messages do not share links.
Topology TopologyOf(const ModelOnCluster& model, double latency, const ModelCosts& costs) {
  const Sites& sites = model.cluster.sites;
  std::vector<LinkLevel> levels = LevelsOfSite(model, latency);
  const bool far = sites.count > 1 && sites.across == AcrossSites::kPipeline;
  if (!far) {
    const double sending = costs.message_bytes / levels.front().bandwidth;
    const bool is_needed = levels.size() > 1 || sending > ShortestAction(costs);
    return is_needed ? Topology{std::move(levels)} : Topology{};
  }
  levels.back().ranks = PipelineRanks(model) / sites.count;
  LinkLevel between;
  between.name = "site";
  between.latency = sites.latency;
  // All devices of a stage send at once.
  between.bandwidth = sites.bandwidth / static_cast<double>(model.ranks_per_stage());
  between.shared = levels.back().ranks > 1;
  // The outermost level of a site with one rank connects nobody.
  if (levels.back().ranks == 1) levels.clear();
  levels.push_back(std::move(between));
  return {std::move(levels)};
}

void AddMessages(const ModelOnCluster& model, const Roofline& roofline, int slices,
                 ModelCosts& costs) {
  const Implementation& implementation = model.batch.profile.get();
  double latency = model.cluster.device.latency;
  costs.message_bytes = HiddenBytes(model.shape, model.batch) / slices;
  if (implementation.scatters_messages) {
    latency = roofline.CollectiveLatency();
    if (!model.batch.sequence_parallel) {
      latency += roofline.OfGather(costs.message_bytes);
      costs.message_bytes /= static_cast<double>(model.batch.tensor);
    }
  }
  costs.comm = roofline.OfMessage(costs.message_bytes, latency, model.cluster.devices_per_site());
  costs.topology = TopologyOf(model, latency, costs);
  if (model.cluster.sites.count > 1) {
    costs.comm =
        std::max(costs.comm, costs.topology.LongestTime(PipelineRanks(model), costs.message_bytes));
  }
  costs.transfers = implementation.transfers;
}

Result<ModelCosts> CostsOfAlikeDevices(const ModelOnCluster& model,
                                       const PipelineDivision& division) {
  auto split = LayersOfStages(model, division.stages);
  if (!split) return tl::unexpected(std::move(split).error());
  std::vector<LayerRange>& divided = *split;
  const int slices = division.slices;
  if (model.batch.sequence % slices != 0) {
    return InvalidParameter("slices", "{}: does not divide `sequence`, {}", slices,
                            model.batch.sequence);
  }
  const Roofline roofline(model);
  const ShardCounts counts =
      ShardCountsOf(model, division.has_pipeline.value_or(division.stages > 1));
  VocabularyWork vocabulary;
  if (division.vocabulary_ranks > 0) {
    vocabulary = WorkOfVocabulary(model.shape, model.batch, division.vocabulary_ranks);
  }
  ModelCosts costs;
  for (std::size_t i = 0; i < divided.size(); ++i) {
    divided[i].sharded_vocabulary = division.vocabulary_ranks > 0;
    const bool has_shard = i < Index(division.vocabulary_ranks);
    const auto replicated = ReplicatedBy(model, divided[i], has_shard ? vocabulary.parameters : 0);
    StageCosts whole;
    AddSummedOnce(model, divided[i], roofline, whole);
    AddContextSum(model, replicated, roofline, whole);
    costs.states.push_back(AddStates(model, replicated, counts, whole));
    if (has_shard) AddVocabulary(vocabulary, roofline, whole);
    MicrobatchTime microbatch;
    std::vector<StageCosts> of_slices;
    for (int slice = 0; slice < slices; ++slice) {
      of_slices.push_back(
          WithCompute(model, divided[i], roofline, counts, slices, slice, whole, microbatch));
    }
    for (StageCosts& slice : of_slices) {
      AddUpdateCosts(model, replicated, roofline, counts, microbatch, slice);
    }
    costs.peak_part = std::max(costs.peak_part, microbatch.peak_part());
    costs.stages.push_back(MeanOfSlices(of_slices));
    if (slices == 1) continue;
    costs.by_slice.insert(costs.by_slice.end(), of_slices.begin(), of_slices.end());
  }
  AddTiedGradients(model, divided, roofline, costs);
  AddMessages(model, roofline, slices, costs);
  costs.offload = roofline.OfHostLink(1);
  return costs;
}

// The links of the slowest device.
Device SlowestLinks(const Cluster& cluster) {
  Device slowest = cluster.groups.front().device;
  for (const NodeGroup& group : cluster.groups) {
    slowest.link_bandwidth = std::min(slowest.link_bandwidth, group.device.link_bandwidth);
    slowest.network_bandwidth = std::min(slowest.network_bandwidth, group.device.network_bandwidth);
    slowest.latency = std::max(slowest.latency, group.device.latency);
    slowest.linked_devices = std::min(slowest.linked_devices, group.device.linked_devices);
  }
  return slowest;
}

// Each stage costs what it does on the devices of its rank, and messages take the slowest links.
Result<ModelCosts> CostsOnGroups(const ModelOnCluster& model, PipelineDivision division) {
  const std::vector<int> ranks = std::exchange(division.ranks, {});
  PENSTOCK_TRY(ModelCosts costs, CostsOfAlikeDevices(model.OnGroup(0), division));
  for (std::size_t group = 1; group < model.cluster.groups.size() && !ranks.empty(); ++group) {
    PENSTOCK_TRY(const ModelCosts own, CostsOfAlikeDevices(model.OnGroup(group), division));
    costs.peak_part = std::max(costs.peak_part, own.peak_part);
    for (std::size_t stage = 0; stage < ranks.size(); ++stage) {
      const int device = ranks[stage] * static_cast<int>(model.ranks_per_stage());
      if (model.cluster.NodeGroupOf(device) != group) continue;
      costs.stages[stage] = own.stages[stage];
      const auto slices = Index(division.slices);
      for (std::size_t i = stage * slices; i < (stage + 1) * slices && slices > 1; ++i) {
        costs.by_slice[i] = own.by_slice[i];
      }
    }
  }
  ModelOnCluster linked = model;
  linked.cluster.device = SlowestLinks(model.cluster);
  AddMessages(linked, Roofline(linked), division.slices, costs);
  return costs;
}

}  // namespace

Result<std::vector<LayerRange>> LayersOfStages(const ModelOnCluster& model, int stages) {
  const ModelShape& shape = model.shape;
  if (!model.layout.empty()) {
    auto split = ParseLayout(model.layout, {shape.layers, shape.predictors, stages});
    if (split) return split;
    return InvalidParameter("layout", "{}: {}", Quote(model.layout), split.error().line());
  }
  auto split = SplitLayers(shape.layers, stages);
  if (!split) return tl::unexpected(In(shape.name, std::move(split).error()));
  split->back().predictors = shape.predictors;
  return split;
}

Result<ModelCosts> CostsOfModel(const ModelOnCluster& model, const PipelineDivision& division) {
  if (!model.cluster.groups.empty()) return CostsOnGroups(model, division);
  return CostsOfAlikeDevices(model, division);
}

}  // namespace penstock
