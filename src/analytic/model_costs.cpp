#include "analytic/model_costs.h"

#include <algorithm>

namespace penstock {
namespace {

// Seconds of kernels and messages on one device of the cluster.
class Roofline {
 public:
  explicit Roofline(const ModelOnCluster& model)
      : cluster_(model.cluster), precision_(model.batch.precision) {}

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
  double OfMessage(double bytes, int devices) const {
    const double bandwidth = devices <= cluster_.devices_per_node
                                 ? cluster_.device.link_bandwidth
                                 : cluster_.device.network_bandwidth;
    return cluster_.device.latency + bytes / (bandwidth * cluster_.bandwidth_efficiency);
  }

 private:
  double Seconds(const KernelCost& kernel) const {
    const Device& device = cluster_.device;
    const double flops = kernel.flops - kernel.skipped;
    const double compute = flops / (device.flops(precision_) * cluster_.flops_efficiency);
    // The ranks that divide a layer are in one node.
    const double exchange = kernel.sent / (device.link_bandwidth * cluster_.bandwidth_efficiency);
    return std::max(compute, OfMemory(kernel.bytes)) + exchange;
  }

  const Cluster& cluster_;
  Precision precision_;
};

StageCosts CostsOfStage(const ModelOnCluster& model, const StageLayers& layers,
                        const Roofline& roofline) {
  const Work work = WorkOfStage(model.shape, layers, model.batch);
  const KeptBytes kept = KeptByStage(model.shape, layers, model.batch);
  StageCosts costs;
  costs.forward = roofline.Seconds(work.forward);
  costs.backward_input = roofline.Seconds(work.backward_input);
  costs.backward_weight = roofline.Seconds(work.backward_weight);
  costs.activation = kept.from_forward;
  costs.activation_after_i = kept.after_input;
  costs.recompute = costs.forward;
  costs.input_activation = layers.embedding ? KeptFromForward(KeptByEmbedding(model.batch))
                                            : HiddenBytes(model.shape, model.batch);
  return costs;
}

void DivideBySlices(int slices, StageCosts& costs) {
  for (double* const cost :
       {&costs.forward, &costs.backward_input, &costs.backward_weight, &costs.activation,
        &costs.activation_after_i, &costs.recompute, &costs.input_activation}) {
    *cost /= slices;
  }
}

// What passes add: the optimizer's step, and the collectives of shards.
void AddUpdateCosts(const ModelOnCluster& model, double parameters, const Roofline& roofline,
                    StageCosts& costs) {
  const auto replicas = static_cast<double>(model.data);
  const double element = model.batch.element_bytes();
  const int group = static_cast<int>(model.batch.tensor) * model.data;
  const double from_others = parameters * (replicas - 1) / replicas;
  costs.step =
      roofline.OfMemory(StepBytes(parameters, model.batch.precision, {model.zero, replicas}));
  if (model.data == 1) return;
  costs.unshard = roofline.OfMessage(from_others * element, group);
  costs.reduce = roofline.OfMessage(from_others * kFp32ElementBytes, group);
  costs.gathered = from_others * element;
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

Result<ModelCosts> CostsOfModel(const ModelOnCluster& model, int stages, int slices) {
  PENSTOCK_TRY(const std::vector<StageLayers> divided, DivideLayers(model.shape, stages));
  const Roofline roofline(model);
  ModelCosts costs;
  for (const StageLayers& layers : divided) {
    const double parameters = ParametersOfStage(model.shape, layers, model.batch).all;
    StageCosts& stage = costs.stages.emplace_back(CostsOfStage(model, layers, roofline));
    DivideBySlices(slices, stage);
    AddUpdateCosts(model, parameters, roofline, stage);
    costs.states.push_back(
        StatesOf(parameters, model.batch.precision, {model.zero, static_cast<double>(model.data)}));
  }
  costs.message_bytes = HiddenBytes(model.shape, model.batch) / slices;
  costs.comm = roofline.OfMessage(costs.message_bytes, model.cluster.devices());
  costs.offload = roofline.OfHostLink(1);
  return costs;
}

}  // namespace penstock
