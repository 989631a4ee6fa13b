#include "analytic/model_costs.h"

#include <algorithm>
#include <array>

#include "schedule/collective_time.h"

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
  // Of a message among `devices` neighboring devices.
  double OfMessage(double bytes, std::int64_t devices) const {
    return cluster_.device.latency + OfLink(bytes, devices);
  }
  // Of the collectives of kernels, in which each device sends to all others at once.
  double Latencies(const Kernels& kernels) const {
    double seconds = 0;
    for (const KernelCost& kernel : kernels)
      seconds += kernel.collectives * cluster_.device.latency;
    return seconds;
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
    return std::max(compute, OfMemory(kernel.bytes)) + OfLink(kernel.sent, batch_.tensor) +
           OfLink(kernel.routed, batch_.tensor * batch_.expert);
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

void DivideBySlices(int slices, StageCosts& costs) {
  for (double* const cost :
       {&costs.forward, &costs.backward_input, &costs.backward_weight, &costs.activation,
        &costs.activation_after_i, &costs.input_activation}) {
    *cost /= slices;
  }
}

StageCosts CostsOfStage(const ModelOnCluster& model, const StageLayers& layers, int slices,
                        const Roofline& roofline) {
  const Work work = WorkOfStage(model.shape, layers, model.batch);
  const KeptBytes kept = KeptByStage(model.shape, layers, model.batch);
  StageCosts costs;
  costs.forward = roofline.Seconds(work.forward);
  costs.backward_input = roofline.Seconds(work.backward_input);
  costs.backward_weight = roofline.Seconds(work.backward_weight);
  costs.activation = kept.from_forward;
  costs.activation_after_i = kept.after_input;
  costs.input_activation = layers.embedding ? KeptFromForward(KeptByEmbedding(model.batch))
                                            : HiddenBytes(model.shape, model.batch);
  DivideBySlices(slices, costs);
  // Each slice has all collectives.
  costs.forward += roofline.Latencies(work.forward);
  costs.backward_input += roofline.Latencies(work.backward_input);
  costs.backward_weight += roofline.Latencies(work.backward_weight);
  costs.recompute = costs.forward;
  return costs;
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
std::array<Replicated, 2> ReplicatedBy(const ModelOnCluster& model, const StageLayers& layers) {
  const ParameterCount count = ParametersOfStage(model.shape, layers, model.batch);
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

Status CheckExpertDivision(const ModelOnCluster& model) {
  const std::int64_t ranks = model.batch.expert;
  if (ranks == 1) return {};
  if (!model.shape.experts) {
    return InvalidArgument("--expert {}: {} has no experts", ranks, model.shape.name);
  }
  if (model.data % ranks != 0) {
    return InvalidArgument("--expert {} does not divide the replicas, --data {}", ranks,
                           model.data);
  }
  const std::int64_t experts = model.shape.experts->experts;
  if (experts % ranks == 0) return {};
  return InvalidArgument("--expert {} does not divide the {} experts of {}", ranks, experts,
                         model.shape.name);
}

}  // namespace

Status CheckDivision(const ModelOnCluster& model) {
  const std::int64_t tensor = model.batch.tensor;
  const std::int64_t group = tensor * model.data;
  const int devices = model.cluster.devices();
  if (devices % group != 0) {
    return InvalidArgument(
        "{} ranks per stage (--tensor {} times --data {}) do not divide {} devices", group, tensor,
        model.data, devices);
  }
  if (tensor > model.cluster.devices_per_node) {
    return InvalidArgument("--tensor {}: at most the {} devices of a node", tensor,
                           model.cluster.devices_per_node);
  }
  PENSTOCK_TRY_STATUS(CheckExpertDivision(model));
  const ModelShape& shape = model.shape;
  const std::int64_t heads = shape.latent ? shape.heads : shape.kv_heads;
  if (heads % tensor != 0) {
    return InvalidArgument("--tensor {} does not divide the {} {} of {}", tensor, heads,
                           shape.latent ? "heads" : "heads of keys and values", shape.name);
  }
  if (model.batch.sequence % tensor != 0) {
    return InvalidArgument("--tensor {} does not divide --sequence {}", tensor,
                           model.batch.sequence);
  }
  if (shape.positions != 0 && model.batch.sequence > shape.positions) {
    return InvalidArgument("--sequence {}: {} has {} positions", model.batch.sequence, shape.name,
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
  return InvalidArgument(
      "{} pipeline ranks: {} devices have at most {} (--tensor {}, --data {}); add --nodes", ranks,
      model.cluster.devices(), most, model.batch.tensor, model.data);
}

Result<ModelCosts> CostsOfModel(const ModelOnCluster& model, int stages, int slices) {
  PENSTOCK_TRY(const std::vector<StageLayers> divided, DivideLayers(model.shape, stages));
  const Roofline roofline(model);
  ModelCosts costs;
  for (const StageLayers& layers : divided) {
    const std::array<Replicated, 2> replicated = ReplicatedBy(model, layers);
    StageCosts& stage = costs.stages.emplace_back(CostsOfStage(model, layers, slices, roofline));
    AddUpdateCosts(model, replicated, roofline, stage);
    StateBytes& states = costs.states.emplace_back();
    for (const Replicated& each : replicated) {
      states =
          states + StatesOf(each.parameters, model.batch.precision, {model.zero, each.replicas});
    }
  }
  costs.message_bytes = HiddenBytes(model.shape, model.batch) / slices;
  costs.comm = roofline.OfMessage(costs.message_bytes, model.cluster.devices());
  costs.offload = roofline.OfHostLink(1);
  return costs;
}

}  // namespace penstock
