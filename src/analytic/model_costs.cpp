#include "analytic/model_costs.h"

#include <algorithm>
#include <array>

#include "analytic/vocabulary_work.h"
#include "base/index.h"
#include "schedule/pricing/collective_time.h"

namespace penstock {
namespace {

// Seconds of kernels and messages on one device of the cluster.
class Roofline {
 public:
  explicit Roofline(const ModelOnCluster& model) : cluster_(model.cluster), batch_(model.batch) {}

  double Seconds(const Kernels& kernels) const {
    double seconds = 0;
    for (const KernelCost& kernel : kernels) seconds += Seconds(kernel);
    return seconds;
  }
  double OfMemory(double bytes) const {
    return bytes / (cluster_.device.memory_bandwidth * cluster_.bandwidth_efficiency);
  }
  double OfHostLink(double bytes) const {
    return bytes / (cluster_.device.host_bandwidth * cluster_.bandwidth_efficiency);
  }
  // The time of a message among `devices` neighboring devices.
  double OfMessage(double bytes, std::int64_t devices) const {
    return cluster_.device.latency + OfLink(bytes, devices);
  }
  // The links of `replicas` devices that are `stride` devices apart: those of the node, and between
  // nodes the network. If the replicas do not fill whole nodes, all of them use the network.
  CollectiveGroup GroupOf(int replicas, int stride) const {
    const double efficiency = cluster_.bandwidth_efficiency, latency = cluster_.device.latency;
    const int in_node = std::max(1, cluster_.devices_per_node / stride);
    const bool fills = cluster_.devices_per_node % stride == 0 && replicas % in_node == 0;
    CollectiveGroup group{replicas, {}};
    if (replicas <= in_node || fills) {
      group.links.levels.push_back(
          {"node", in_node, latency, cluster_.device.link_bandwidth * efficiency});
    }
    if (replicas > in_node) {
      group.links.levels.push_back({"network", LinkLevel::kAllRanks, latency,
                                    cluster_.device.network_bandwidth * efficiency});
    }
    return group;
  }

 private:
  double Seconds(const KernelCost& kernel) const {
    const Device& device = cluster_.device;
    const double flops = kernel.flops - kernel.skipped;
    const double compute = flops / (device.flops(batch_.precision) * cluster_.flops_efficiency);
    // In collectives, each device sends to all others at once.
    const double communication = kernel.collectives * device.latency +
                                 OfLink(kernel.sent, batch_.tensor) +
                                 OfLink(kernel.routed, batch_.tensor * batch_.expert);
    return std::max(compute, OfMemory(kernel.bytes)) +
           communication * (1 - cluster_.hidden_communication);
  }
  // Neighbors that do not all fit in a node reach each other over the network.
  double OfLink(double bytes, std::int64_t devices) const {
    const double bandwidth = devices <= cluster_.devices_per_node
                                 ? cluster_.device.link_bandwidth
                                 : cluster_.device.network_bandwidth;
    return bytes / (bandwidth * cluster_.bandwidth_efficiency);
  }

  const Cluster& cluster_;
  const Microbatch& batch_;
};

Microbatch SliceOf(const Microbatch& batch, int slices, int slice) {
  Microbatch of_slice = batch;
  of_slice.sequence = batch.sequence / slices;
  of_slice.earlier = of_slice.sequence * slice;
  return of_slice;
}

// Returns `costs` with the times and the memory of F, I and W of slice `slice`. All slices together
// keep what the microbatch would.
StageCosts WithCompute(const ModelOnCluster& model, const LayerRange& layers,
                       const Roofline& roofline, int slices, int slice, StageCosts costs) {
  const Work work = WorkOfStage(model.shape, layers, SliceOf(model.batch, slices, slice));
  const KeptBytes kept = KeptByStage(model.shape, layers, model.batch);
  costs.forward = roofline.Seconds(work.forward);
  costs.backward_input = roofline.Seconds(work.backward_input);
  costs.backward_weight = roofline.Seconds(work.backward_weight);
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
  const auto replicas = static_cast<double>(model.data);
  const int tensor = static_cast<int>(model.batch.tensor);
  const int expert = static_cast<int>(model.batch.expert);
  return {
      {{count.others, replicas, tensor}, {count.of_experts, replicas / expert, tensor * expert}}};
}

// What passes add: the optimizer's step, and the collectives of shards.
void AddUpdateCosts(const ModelOnCluster& model, const std::array<Replicated, 2>& all,
                    const Roofline& roofline, StageCosts& costs) {
  const double element = model.batch.element_bytes();
  for (const Replicated& each : all) {
    costs.step += roofline.OfMemory(
        StepBytes(each.parameters, model.batch.precision, {model.zero, each.replicas}));
    const CollectiveGroup group = roofline.GroupOf(static_cast<int>(each.replicas), each.stride);
    constexpr auto kRings = CollectiveAlgorithm::kHierarchical;
    costs.unshard += AllGatherTime(kRings, group, each.parameters * element);
    costs.reduce += ReduceScatterTime(kRings, group, each.parameters * kFp32ElementBytes);
    costs.gathered += each.from_others() * element;
  }
}

StateBytes AddStates(const ModelOnCluster& model, const std::array<Replicated, 2>& all,
                     StageCosts& costs) {
  StateBytes states;
  for (const Replicated& each : all) {
    states = states + StatesOf(each.parameters, model.batch.precision, {model.zero, each.replicas});
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
Topology TopologyOf(const ModelOnCluster& model) {
  const Cluster& cluster = model.cluster;
  const int group = static_cast<int>(model.batch.tensor) * model.data;
  if (cluster.nodes == 1 || group >= cluster.devices_per_node ||
      cluster.devices_per_node % group != 0) {
    return {};
  }
  LinkLevel node, network;
  node.name = "node";
  node.ranks = cluster.devices_per_node / group;
  node.bandwidth = cluster.device.link_bandwidth * cluster.bandwidth_efficiency;
  network.name = "network";
  network.bandwidth = cluster.device.network_bandwidth * cluster.bandwidth_efficiency;
  node.latency = network.latency = cluster.device.latency;
  return {{node, network}};
}

Status CheckExpertDivision(const ModelOnCluster& model) {
  const std::int64_t ranks = model.batch.expert;
  if (ranks == 1) return {};
  if (!model.shape.experts) {
    return InvalidParameter("expert", "{}: {} has no experts", ranks, model.shape.name);
  }
  if (model.data % ranks != 0) {
    return InvalidParameter("expert", "{}: does not divide the {} replicas (`data_parallel`)",
                            ranks, model.data);
  }
  const std::int64_t experts = model.shape.experts->experts;
  if (experts % ranks == 0) return {};
  return InvalidParameter("expert", "{}: does not divide the {} experts of {}", ranks, experts,
                          model.shape.name);
}

}  // namespace

Status CheckDivision(const ModelOnCluster& model) {
  const std::int64_t tensor = model.batch.tensor;
  const std::int64_t group = tensor * model.data;
  const int devices = model.cluster.devices();
  if (devices % group != 0) {
    return InvalidParameter(
        tensor > 1 ? "tensor" : "data_parallel",
        "{}: {} ranks per stage (`tensor` {} times `data_parallel` {}) do not divide {} devices",
        tensor > 1 ? tensor : model.data, group, tensor, model.data, devices);
  }
  if (tensor > model.cluster.devices_per_node) {
    return InvalidParameter("tensor", "{}: at most the {} devices of a node", tensor,
                            model.cluster.devices_per_node);
  }
  PENSTOCK_TRY_STATUS(CheckExpertDivision(model));
  const ModelShape& shape = model.shape;
  const std::int64_t heads = shape.latent ? shape.heads : shape.kv_heads;
  if (heads % tensor != 0) {
    return InvalidParameter("tensor", "{}: does not divide the {} {} of {}", tensor, heads,
                            shape.latent ? "heads" : "heads of keys and values", shape.name);
  }
  if (model.batch.sequence % tensor != 0) {
    return InvalidParameter("tensor", "{}: does not divide `sequence`, {}", tensor,
                            model.batch.sequence);
  }
  if (shape.positions != 0 && model.batch.sequence > shape.positions) {
    return InvalidParameter("sequence", "{}: {} has {} positions", model.batch.sequence, shape.name,
                            shape.positions);
  }
  return {};
}

int PipelineRanks(const ModelOnCluster& model) {
  return model.cluster.devices() / (static_cast<int>(model.batch.tensor) * model.data);
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
  auto split = SplitLayers(model.shape.layers, division.stages);
  if (!split) return tl::unexpected(In(model.shape.name, std::move(split).error()));
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
  costs.message_bytes = HiddenBytes(model.shape, model.batch) / slices;
  costs.comm = roofline.OfMessage(costs.message_bytes, model.cluster.devices());
  costs.topology = TopologyOf(model);
  costs.offload = roofline.OfHostLink(1);
  return costs;
}

}  // namespace penstock
