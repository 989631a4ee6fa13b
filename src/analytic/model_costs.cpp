#include "analytic/model_costs.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "analytic/vocabulary_work.h"
#include "base/index.h"
#include "base/text/quote.h"
#include "model_spec/layout.h"
#include "schedule/pricing/collective_time.h"

namespace penstock {
namespace {

// Seconds of kernels and messages on one device of the cluster.
class Roofline {
 public:
  explicit Roofline(const ModelOnCluster& model)
      : cluster_(model.cluster), batch_(model.batch), linked_(model.cluster.linked_devices()) {}

  // The time of the kernels of one part: the device's or that of launches, whichever is longer, and
  // messages that neither hides; or the rest of what the host does, if that takes longer.
  double Seconds(const Kernels& kernels) const {
    double device = 0, launches = 0, messages = 0, host = 0;
    for (const KernelCost& kernel : kernels) {
      device += DeviceSeconds(kernel);
      launches += kernel.kernels * cluster_.speeds.host_launch;
      messages += MessageSeconds(kernel);
      host += kernel.host;
    }
    return std::max(std::max(device, launches) + messages, host) * cluster_.time_factor;
  }
  double OfMemory(double bytes) const {
    return bytes / (cluster_.device.memory_bandwidth * cluster_.speeds.memory) *
           cluster_.time_factor;
  }
  double OfHostLink(double bytes) const {
    return bytes / (cluster_.device.host_bandwidth * cluster_.speeds.link);
  }
  // The time of a message among `devices` neighboring devices.
  double OfMessage(double bytes, double latency, std::int64_t devices) const {
    return latency + OfLink(bytes, 0, devices);
  }
  double CollectiveLatency() const {
    const double latency = cluster_.speeds.collective_latency;
    return latency > 0 ? latency : cluster_.device.latency;
  }
  // The time until all ranks that divide a layer have the parts of the others.
  double OfGather(double bytes) const {
    const auto ranks = static_cast<double>(batch_.tensor);
    if (batch_.tensor == 1) return 0;
    return CollectiveLatency() + OfLink(bytes * (ranks - 1) / ranks, 1, batch_.tensor);
  }
  // The time of an all-reduce between two devices that are `distance` devices apart.
  double OfSumOfTwo(double bytes, std::int64_t distance) const {
    return (2 * CollectiveLatency() + OfLink(bytes, 0, distance + 1)) * cluster_.time_factor;
  }
  // The links of `replicas` devices that are `stride` devices apart: those of the node, and between
  // nodes the network. If the replicas do not fill whole nodes, all of them use the network.
  CollectiveGroup GroupOf(int replicas, int stride) const {
    const Device& device = cluster_.device;
    const int in_node = std::max(1, linked_ / stride);
    const bool fills = linked_ % stride == 0 && replicas % in_node == 0;
    CollectiveGroup group{replicas, {}};
    if (replicas <= in_node || fills) {
      group.links.levels.push_back(
          {"node", in_node, device.latency, device.link_bandwidth * cluster_.speeds.link});
    }
    if (replicas > in_node) {
      group.links.levels.push_back({"network", LinkLevel::kAllRanks, device.latency,
                                    device.network_bandwidth * cluster_.speeds.network});
    }
    return group;
  }

 private:
  double DeviceSeconds(const KernelCost& kernel) const {
    const Precision precision =
        kernel.precision.value_or(kernel.is_linear ? batch_.precision : Plain());
    const double bandwidth = cluster_.device.memory_bandwidth * cluster_.speeds.memory;
    const double products =
        MatmulSeconds(kernel.flops - kernel.skipped, precision) / kernel.efficiency;
    return std::max(products * StartOf(kernel, precision), kernel.bytes / bandwidth) +
           kernel.kernels * cluster_.speeds.device_launch;
  }
  // The factor of a matmul's time by its start and end, which take as long as a number of steps
  // along its inner dimension.
  double StartOf(const KernelCost& kernel, Precision precision) const {
    if (kernel.depth == 0) return 1;
    const Device& device = cluster_.device;
    return 1 + cluster_.speeds.matmul_start * device.flops(precision) /
                   device.flops(Precision::kBf16) / kernel.depth;
  }
  double MatmulSeconds(double flops, Precision precision) const {
    return flops / (cluster_.device.flops(precision) * cluster_.speeds.of(precision));
  }
  // In collectives, each device sends to all others at once.
  double MessageSeconds(const KernelCost& kernel) const {
    if (kernel.collectives == 0) return 0;
    const Speeds& speeds = cluster_.speeds;
    const double tensor =
        OfRings(kernel.sent) + OfLink(kernel.shared, batch_.tensor, batch_.tensor * batch_.context);
    const double expert = RoutedSeconds(kernel);
    const double hidden = kernel.routed > 0 ? speeds.hidden_expert : speeds.hidden_tensor;
    double concurrent = MatmulSeconds(kernel.hidden_by, batch_.precision);
    if (kernel.hidden_by > 0) concurrent += speeds.device_launch;
    const double all = kernel.collectives * CollectiveLatency() + tensor + expert - concurrent;
    return std::max(0.0, all) * kernel.exposed * (1 - hidden);
  }
  double RoutedSeconds(const KernelCost& kernel) const {
    const Speeds& speeds = cluster_.speeds;
    const Reach reach = {batch_.expert_division(), batch_.expert_ranks()};
    const double link = speeds.expert_link > 0 ? speeds.expert_link : speeds.link;
    const double network = speeds.expert_network > 0 ? speeds.expert_network : speeds.network;
    if (kernel.routed_once == 0 || reach.devices <= linked_ || reach.stride >= linked_) {
      return OfLink(kernel.routed, reach, link, network);
    }
    // Each node gets a token once over the network, and passes it on.
    const double nodes = static_cast<double>(reach.devices) / static_cast<double>(linked_);
    const double copies = nodes * (1 - std::pow(1 - 1 / nodes, kernel.choices));
    const double outside = kernel.routed_once * copies * (nodes - 1) / nodes;
    return std::max(outside / (cluster_.device.network_bandwidth * network),
                    kernel.routed / nodes / (cluster_.device.link_bandwidth * link));
  }
  // The format of everything but quantized linear layers.
  Precision Plain() const {
    return IsQuantized(batch_.precision) ? Precision::kBf16 : batch_.precision;
  }
  // The time in which the ranks that divide a layer send these bytes each, in rings. Over several
  // nodes, each rank exchanges its part of what its node has with one rank of each other node.
  double OfRings(double bytes) const {
    if (batch_.tensor <= linked_ || bytes == 0) return OfLink(bytes, 1, batch_.tensor);
    const auto ranks = static_cast<double>(batch_.tensor), in_node = static_cast<double>(linked_);
    const double all = bytes * ranks / (ranks - 1);
    return OfLink(all * (in_node - 1) / in_node, 1, linked_) +
           OfLink(all / in_node * (1 - in_node / ranks), linked_, batch_.tensor);
  }
  // The time to send bytes, in equal parts, to all others of a group, whose ranks are `stride`
  // devices apart and span `devices`. Those outside of the rank's own node are reached over the
  // network, at the same time as the others. A stride of 0 means a single one.
  double OfLink(double bytes, std::int64_t stride, std::int64_t devices) const {
    return OfLink(bytes, {stride, devices}, cluster_.speeds.link, cluster_.speeds.network);
  }
  struct Reach {
    std::int64_t stride, devices;
  };
  // `of_link` and `of_network` are parts of their bandwidths.
  double OfLink(double bytes, const Reach& reach, double of_link, double of_network) const {
    if (bytes == 0) return 0;
    const auto& [stride, devices] = reach;
    const double link = cluster_.device.link_bandwidth * of_link;
    const double network = cluster_.device.network_bandwidth * of_network;
    if (devices <= linked_) return bytes / link;
    if (stride == 0 || stride >= linked_) return bytes / network;
    const auto ranks = static_cast<double>(devices / stride);
    const double outside =
        (ranks - static_cast<double>(linked_) / static_cast<double>(stride)) / (ranks - 1);
    return std::max(bytes * outside / network, bytes * (1 - outside) / link);
  }

  const Cluster& cluster_;
  const Microbatch& batch_;
  int linked_;  // devices that links join
};

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

// Parameters of which `replicas` replicas have copies, on devices that are `stride` devices apart.
struct Replicated {
  double parameters = 0;
  double replicas = 1;
  int stride = 1;

  // The part that the other replicas have, once shards are gathered.
  double from_others() const { return parameters * (replicas - 1) / replicas; }
};

// Replicas divide the experts, so that fewer of them have copies of the same ones.
std::array<Replicated, 2> ReplicatedBy(const ModelOnCluster& model, const LayerRange& layers,
                                       double of_vocabulary) {
  ParameterCount count = ParametersOfStage(model.shape, layers, model.batch);
  count.others += of_vocabulary;
  const auto ranks = static_cast<double>(model.ranks_per_stage());
  const int tensor = static_cast<int>(model.batch.tensor);
  const int expert = static_cast<int>(model.batch.expert_ranks());
  return {{{count.others, ranks / tensor, tensor}, {count.of_experts, ranks / expert, expert}}};
}

// Bytes of a weight that replicas gather.
double GatheredBytes(const Microbatch& batch) {
  const Implementation& implementation = batch.profile.get();
  if (IsQuantized(batch.precision) && implementation.quantized_gather_bytes > 0) {
    return implementation.quantized_gather_bytes;
  }
  if (implementation.gathered_bytes > 0) return implementation.gathered_bytes;
  return implementation.states(batch).working;
}

// Seconds until replicas have gathered weights, and have summed gradients.
struct ShardTimes {
  double gather = 0, sum = 0;
};
ShardTimes ShardTimesOf(const ModelOnCluster& model, const Replicated& each,
                        const Roofline& roofline) {
  const Implementation& implementation = model.batch.profile.get();
  const double reduced = implementation.reduced_bytes > 0
                             ? implementation.reduced_bytes
                             : implementation.states(model.batch).gradient;
  const CollectiveGroup group = roofline.GroupOf(static_cast<int>(each.replicas), each.stride);
  constexpr auto kRings = CollectiveAlgorithm::kHierarchical;
  return {AllGatherTime(kRings, group, each.parameters * GatheredBytes(model.batch)) *
              model.cluster.time_factor,
          ReduceScatterTime(kRings, group, each.parameters * reduced) * model.cluster.time_factor};
}

// With `zero` 3, F and I gather the weights of their layers, and I sums their gradients.
void AddShards(const ModelOnCluster& model, const LayerRange& layers, const Roofline& roofline,
               StageCosts& costs) {
  const double exposed = model.batch.profile.get().shards_exposed;
  if (model.zero < 3 || exposed == 0) return;
  for (const Replicated& each : ReplicatedBy(model, layers, 0)) {
    const ShardTimes times = ShardTimesOf(model, each, roofline);
    costs.forward += exposed * times.gather;
    costs.backward_input += exposed * (times.gather + times.sum);
  }
}

// Returns `costs` with the times and the memory of F, I and W of slice `slice`. All slices together
// keep what the microbatch would.
StageCosts WithCompute(const ModelOnCluster& model, const LayerRange& layers,
                       const Roofline& roofline, int slices, int slice, StageCosts costs) {
  const KeptBytes kept = KeptByStage(model.shape, layers, model.batch, model.recompute);
  costs.forward = costs.backward_input = costs.backward_weight = 0;
  for (const StagePart& part :
       PartsOfStage(model.shape, layers, SliceOf(model.batch, slices, slice), model.recompute)) {
    costs.forward += part.count * roofline.Seconds(part.work.forward);
    costs.backward_input += part.count * (roofline.Seconds(part.work.backward_input) +
                                          roofline.Seconds(Recomputed(part, model.recompute)));
    costs.backward_weight += part.count * roofline.Seconds(part.work.backward_weight);
  }
  AddShards(model, layers, roofline, costs);
  const double offload = roofline.OfHostLink(kept.offloaded / slices) *
                         model.batch.profile.get().offload_exposed * model.cluster.time_factor;
  costs.forward += offload;
  costs.backward_input += offload;
  if (model.batch.profile.lora) costs.backward_weight = 0;
  if (layers.has_embedding()) {
    costs.backward_weight += std::exchange(costs.backward_input, 0);
  }
  costs.workspace = kept.transient / slices;
  costs.activation = kept.from_forward / slices;
  costs.activation_after_i = kept.after_input / slices;
  costs.recompute = costs.forward;
  const double input = layers.has_embedding() ? KeptFromForward(KeptByEmbedding(model.batch))
                                              : HiddenBytes(model.shape, model.batch);
  costs.input_activation = input / slices;
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

// Groups of `zero_ranks` replicas divide the replicas of experts, too, which are fewer.
Sharding ShardingOf(const ModelOnCluster& model, double replicas) {
  if (model.zero_ranks == 0) return {model.zero, replicas};
  const auto all = static_cast<double>(model.ranks_per_stage() / model.batch.tensor);
  return {model.zero, std::clamp(replicas * model.zero_ranks / all, 1.0, replicas)};
}

// What passes add: the optimizer's step, and the collectives of shards.
void AddUpdateCosts(const ModelOnCluster& model, const std::array<Replicated, 2>& all,
                    const Roofline& roofline, StageCosts& costs) {
  if (model.batch.profile.lora) return;
  const Implementation& implementation = model.batch.profile.get();
  const StateFormat format = implementation.states(model.batch);
  const bool every_microbatch = model.zero == 3 && implementation.shards_exposed > 0;
  const double exposed = every_microbatch ? 0 : 1 - model.cluster.speeds.hidden_gradients;
  for (const Replicated& each : all) {
    const StateElements elements = ElementsOf(each.parameters, ShardingOf(model, each.replicas));
    costs.step += roofline.OfMemory(implementation.bytes_per_step > 0
                                        ? elements.masters * implementation.bytes_per_step
                                        : StepBytes(elements, format));
    const ShardTimes times = ShardTimesOf(model, each, roofline);
    costs.unshard += exposed * times.gather;
    costs.reduce += exposed * times.sum;
    costs.gathered += each.from_others() * GatheredBytes(model.batch);
  }
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
  const std::int64_t distance = model.ranks_per_stage() * (PipelineRanks(model) - 1);
  const double seconds = roofline.OfSumOfTwo(bytes, distance);
  costs.stages.front().step += seconds;
  costs.stages.back().step += seconds;
}

StateBytes AddStates(const ModelOnCluster& model, const std::array<Replicated, 2>& all,
                     StageCosts& costs) {
  StateFormat format = model.batch.profile.get().states(model.batch);
  if (model.batch.profile.lora) format = {.working = format.working, .gradient = 0, .optimizer = 0};
  StateBytes states;
  for (const Replicated& each : all) {
    states =
        states + StatesOf(ElementsOf(each.parameters, ShardingOf(model, each.replicas)), format);
  }
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

// Empty if all neighbors are on the same kind of link.
Topology TopologyOf(const ModelOnCluster& model, double latency) {
  const Cluster& cluster = model.cluster;
  const int group = static_cast<int>(model.ranks_per_stage());
  const int linked = cluster.linked_devices();
  if (cluster.devices() <= linked || group >= linked || linked % group != 0) return {};
  LinkLevel node, network;
  node.name = "node";
  node.ranks = linked / group;
  node.bandwidth = cluster.device.link_bandwidth * cluster.speeds.link;
  network.name = "network";
  network.bandwidth = cluster.device.network_bandwidth * cluster.speeds.network;
  node.latency = network.latency = latency;
  return {{node, network}};
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
  costs.comm = roofline.OfMessage(costs.message_bytes, latency, model.cluster.devices());
  costs.topology = TopologyOf(model, latency);
  costs.transfers = implementation.transfers;
}

Status CheckExpertDivision(const ModelOnCluster& model) {
  const std::int64_t ranks = model.batch.expert, division = model.batch.expert_division();
  if (ranks == 1 && division == model.batch.tensor) return {};
  if (!model.shape.experts) {
    return InvalidParameter("expert", "{}: {} has no experts", ranks, model.shape.name);
  }
  if (model.ranks_per_stage() % (ranks * division) != 0) {
    return InvalidParameter(
        "expert",
        "{}: {} ranks (`expert` {} times `expert_tensor` {}) do not divide the {} of a "
        "stage (`tensor` {} times `context` {} times `data_parallel` {})",
        ranks, ranks * division, ranks, division, model.ranks_per_stage(), model.batch.tensor,
        model.batch.context, model.data);
  }
  const std::int64_t experts = model.shape.experts->experts;
  if (experts % ranks == 0) return {};
  return InvalidParameter("expert", "{}: does not divide the {} experts of {}", ranks, experts,
                          model.shape.name);
}

Result<std::vector<LayerRange>> LayersOf(const ModelOnCluster& model, int stages) {
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

}  // namespace

int Cluster::linked_devices() const {
  int linked = devices_per_node;
  const int most = std::min(device.linked_devices, devices());
  for (int count = 2 * devices_per_node; count <= most; count += devices_per_node) {
    if (devices() % count == 0) linked = count;
  }
  return linked;
}

Status CheckDivision(const ModelOnCluster& model) {
  const std::int64_t tensor = model.batch.tensor;
  const std::int64_t group = model.ranks_per_stage(), context = model.batch.context;
  const int devices = model.cluster.devices();
  if (devices % group != 0) {
    return InvalidParameter(tensor > 1 ? "tensor" : (context > 1 ? "context" : "data_parallel"),
                            "{}: {} ranks per stage (`tensor` {} times `context` {} times "
                            "`data_parallel` {}) do not divide {} "
                            "devices",
                            tensor > 1 ? tensor : (context > 1 ? context : model.data), group,
                            tensor, context, model.data, devices);
  }
  PENSTOCK_TRY_STATUS(CheckExpertDivision(model));
  const ModelShape& shape = model.shape;
  const std::int64_t heads = shape.latent ? shape.heads : shape.kv_heads;
  if (heads % tensor != 0) {
    return InvalidParameter("tensor", "{}: does not divide the {} {} of {}", tensor, heads,
                            shape.latent ? "heads" : "heads of keys and values", shape.name);
  }
  if (model.batch.sequence % context != 0) {
    return InvalidParameter("context", "{}: does not divide `sequence`, {}", context,
                            model.batch.sequence);
  }
  if (model.batch.sequence / context % tensor != 0) {
    return InvalidParameter("tensor", "{}: does not divide `sequence`, {}", tensor,
                            model.batch.sequence / context);
  }
  if (shape.positions != 0 && model.batch.sequence > shape.positions) {
    return InvalidParameter("sequence", "{}: {} has {} positions", model.batch.sequence, shape.name,
                            shape.positions);
  }
  return {};
}

int PipelineRanks(const ModelOnCluster& model) {
  return model.cluster.devices() / static_cast<int>(model.ranks_per_stage());
}

Status CheckRanks(const ModelOnCluster& model, int ranks) {
  const int most = PipelineRanks(model);
  if (ranks <= most) return {};
  return InvalidParameter("ranks",
                          "{}: {} devices have at most {} pipeline ranks (`tensor` {}, "
                          "`data_parallel` {}); add `nodes`",
                          ranks, model.cluster.devices(), most, model.batch.tensor, model.data);
}

Result<ModelCosts> CostsOfModel(const ModelOnCluster& model, const PipelineDivision& division) {
  auto split = LayersOf(model, division.stages);
  if (!split) return tl::unexpected(std::move(split).error());
  std::vector<LayerRange>& divided = *split;
  const int slices = division.slices;
  if (model.batch.sequence % slices != 0) {
    return InvalidParameter("slices", "{}: does not divide `sequence`, {}", slices,
                            model.batch.sequence);
  }
  const Roofline roofline(model);
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
    AddUpdateCosts(model, replicated, roofline, whole);
    costs.states.push_back(AddStates(model, replicated, whole));
    if (has_shard) AddVocabulary(vocabulary, roofline, whole);
    std::vector<StageCosts> of_slices;
    for (int slice = 0; slice < slices; ++slice) {
      of_slices.push_back(WithCompute(model, divided[i], roofline, slices, slice, whole));
    }
    costs.stages.push_back(MeanOfSlices(of_slices));
    if (slices == 1) continue;
    costs.by_slice.insert(costs.by_slice.end(), of_slices.begin(), of_slices.end());
  }
  AddTiedGradients(model, divided, roofline, costs);
  AddMessages(model, roofline, slices, costs);
  costs.offload = roofline.OfHostLink(1);
  return costs;
}

}  // namespace penstock
