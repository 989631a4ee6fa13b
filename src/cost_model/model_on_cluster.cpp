#include "cost_model/model_on_cluster.h"

#include <algorithm>

namespace penstock {
namespace {

Status CheckExpertDivision(const ModelOnCluster& model) {
  const std::int64_t ranks = model.batch.expert, division = model.batch.expert_division();
  if (ranks == 1 && division == model.batch.tensor) return {};
  if (!model.shape.experts) {
    return InvalidParameter("expert", "{}: {} has no experts", ranks, model.shape.name);
  }
  if (model.ranks_of_experts() % (ranks * division) != 0) {
    const bool is_whole_stage = model.ranks_of_experts() == model.ranks_per_stage();
    return InvalidParameter(
        "expert",
        "{}: {} ranks (`expert` {} times `expert_tensor` {}) do not divide the {} of a "
        "stage{} (`tensor` {}{} times `data_parallel` {})",
        ranks, ranks * division, ranks, division, model.ranks_of_experts(),
        is_whole_stage ? "" : " with the same part of the tokens", model.batch.tensor,
        is_whole_stage ? fmt::format(" times `context` {}", model.batch.context) : "", model.data);
  }
  const std::int64_t experts = model.shape.experts->experts;
  if (experts % ranks == 0) return {};
  return InvalidParameter("expert", "{}: does not divide the {} experts of {}", ranks, experts,
                          model.shape.name);
}

// The devices of a pipeline rank are alike.
Status CheckGroups(const ModelOnCluster& model) {
  const Cluster& cluster = model.cluster;
  if (cluster.groups.empty()) return {};
  if (cluster.sites.count > 1 && cluster.sites.across == AcrossSites::kData) {
    return InvalidParameter("across_sites",
                            ": replicas of a pipeline on unlike devices have no price; give "
                            "`across_sites` pipeline");
  }
  for (const NodeGroup& group : cluster.groups) {
    const int devices = group.nodes * cluster.devices_per_node;
    if (devices % model.ranks_per_stage() == 0) continue;
    return InvalidParameter(
        "device",
        "{}: the {} devices of a stage (`tensor` times `context` times "
        "`data_parallel`) do not divide its {}; all devices of a stage must be alike",
        group.device.name, model.ranks_per_stage(), devices);
  }
  return {};
}

// Sites have whole pipeline ranks, or whole replicas of the pipeline.
Status CheckSites(const ModelOnCluster& model) {
  const Sites& sites = model.cluster.sites;
  if (sites.count == 1) return {};
  if (sites.across == AcrossSites::kPipeline) {
    if (PipelineRanks(model) % sites.count == 0) return {};
    return InvalidParameter("sites",
                            "{}: they do not divide the {} pipeline ranks; give another number, or "
                            "`across_sites` data",
                            sites.count, PipelineRanks(model));
  }
  if (model.data % sites.count != 0) {
    return InvalidParameter("sites", "{}: they do not divide `data_parallel`, {}", sites.count,
                            model.data);
  }
  if (model.site_ranks_per_stage() % model.batch.expert_ranks() == 0) return {};
  return InvalidParameter("expert",
                          "{}: the {} ranks that divide experts do not divide the {} of a stage in "
                          "one of {} sites",
                          model.batch.expert, model.batch.expert_ranks(),
                          model.site_ranks_per_stage(), sites.count);
}

Status CheckDevices(const ModelOnCluster& model) {
  const int devices = model.cluster.devices();
  if (devices % model.ranks_per_stage() == 0) return {};
  const std::int64_t tensor = model.batch.tensor, context = model.batch.context;
  const char* field = "data_parallel";
  std::int64_t value = model.data;
  if (tensor > 1) {
    field = "tensor", value = tensor;
  } else if (context > 1) {
    field = "context", value = context;
  }
  return InvalidParameter(field,
                          "{}: {} ranks per stage (`tensor` {} times `context` {} times "
                          "`data_parallel` {}) do not divide {} devices",
                          value, model.ranks_per_stage(), tensor, context, model.data, devices);
}

// Groups of equally many replicas shard: all of them, if that is what is given.
Status CheckShards(const ModelOnCluster& model) {
  const bool has_context = model.batch.profile.get().shards_over_context;
  const std::int64_t replicas = model.data * (has_context ? model.batch.context : 1);
  const bool divides = model.zero_ranks == 0 || replicas % model.zero_ranks == 0;
  if (divides || model.zero_ranks > replicas) return {};
  return InvalidParameter("zero_ranks", "{}: does not divide the {} replicas (`data_parallel`{})",
                          model.zero_ranks, replicas, has_context ? " times `context`" : "");
}

Status CheckHeads(const ModelOnCluster& model) {
  const ModelShape& shape = model.shape;
  const std::int64_t tensor = model.batch.tensor;
  const std::int64_t heads = shape.latent ? shape.heads : shape.kv_heads;
  if (heads % tensor == 0) return {};
  const bool has_copies =
      model.batch.profile.get().copies_heads && tensor % heads == 0 && shape.heads % tensor == 0;
  if (has_copies) return {};
  return InvalidParameter("tensor", "{}: does not divide the {} {} of {}", tensor, heads,
                          shape.latent ? "heads" : "heads of keys and values", shape.name);
}

Status CheckSequence(const ModelOnCluster& model) {
  const std::int64_t sequence = model.batch.sequence, context = model.batch.context;
  if (sequence % context != 0) {
    return InvalidParameter("context", "{}: does not divide `sequence`, {}", context, sequence);
  }
  if (sequence / context % model.batch.tensor != 0) {
    return InvalidParameter("tensor", "{}: does not divide `sequence`, {}", model.batch.tensor,
                            sequence / context);
  }
  if (model.shape.positions != 0 && sequence > model.shape.positions) {
    return InvalidParameter("sequence", "{}: {} has {} positions", sequence, model.shape.name,
                            model.shape.positions);
  }
  return {};
}

}  // namespace

int Cluster::linked_devices() const {
  int linked = devices_per_node;
  const int most = std::min(device.linked_devices, devices_per_site());
  for (int count = 2 * devices_per_node; count <= most; count += devices_per_node) {
    if (devices_per_site() % count == 0) linked = count;
  }
  return linked;
}

Status CheckDivision(const ModelOnCluster& model) {
  PENSTOCK_TRY_STATUS(CheckDevices(model));
  PENSTOCK_TRY_STATUS(CheckExpertDivision(model));
  PENSTOCK_TRY_STATUS(CheckSites(model));
  PENSTOCK_TRY_STATUS(CheckGroups(model));
  PENSTOCK_TRY_STATUS(CheckShards(model));
  PENSTOCK_TRY_STATUS(CheckHeads(model));
  return CheckSequence(model);
}

Mesh ModelOnCluster::mesh() const {
  return Mesh::Make({.data = data,
                     .context = static_cast<int>(batch.context),
                     .tensor = static_cast<int>(batch.tensor)},
                    kPipelineOutermost)
      .value();
}

Mesh ModelOnCluster::expert_mesh() const {
  const int tensor = static_cast<int>(batch.expert_division());
  return Mesh::Make({.data = static_cast<int>(ranks_of_experts()) / tensor,
                     .expert = static_cast<int>(batch.expert),
                     .context = static_cast<int>(ranks_per_stage() / ranks_of_experts()),
                     .tensor = tensor},
                    kPipelineOutermost)
      .value();
}

int PipelineRanks(const ModelOnCluster& model) {
  return model.cluster.devices() / static_cast<int>(model.ranks_per_stage());
}

Status CheckRanks(const ModelOnCluster& model, int ranks) {
  const int most = PipelineRanks(model), sites = model.cluster.sites.count;
  if (sites > 1 && ranks < most) {
    return InvalidParameter("ranks",
                            "{}: the devices of {} sites have {} pipeline ranks; give `nodes` of "
                            "which all are used",
                            ranks, sites, most);
  }
  if (ranks <= most) return {};
  return InvalidParameter("ranks",
                          "{}: {} devices have at most {} pipeline ranks (`tensor` {}, "
                          "`data_parallel` {}); add `nodes`",
                          ranks, model.cluster.devices(), most, model.batch.tensor, model.data);
}

std::size_t Cluster::NodeGroupOf(int index) const {
  int end = 0;
  for (std::size_t group = 0; group + 1 < groups.size(); ++group) {
    end += groups[group].nodes * devices_per_node;
    if (index < end) return group;
  }
  return groups.size() - 1;
}

double Cluster::mean_flops(Precision precision) const {
  if (groups.empty()) return device.flops(precision);
  double sum = 0;
  for (const NodeGroup& group : groups) sum += group.nodes * group.device.flops(precision);
  return sum / nodes;
}

const Device& ModelOnCluster::DeviceOf(int rank) const {
  if (cluster.groups.empty()) return cluster.device;
  const std::size_t group = cluster.NodeGroupOf(rank * static_cast<int>(ranks_per_stage()));
  return cluster.groups[group].device;
}

ModelOnCluster ModelOnCluster::OnGroup(std::size_t group) const {
  const NodeGroup& of = cluster.groups[group];
  ModelOnCluster alike = *this;
  alike.cluster.groups.clear();
  alike.cluster.device = of.device;
  alike.cluster.time_factor = of.time_factor;
  alike.batch.profile.generation = of.generation;
  return alike;
}

}  // namespace penstock
