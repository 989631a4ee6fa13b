#include "plan/export/plan_job.h"

#include <algorithm>

#include "model_spec/layout.h"
#include "plan/search/engine_model.h"
#include "plan/search/pricing.h"
#include "scenario/fields.h"

namespace penstock {
namespace {

// Fields that a PlanJob has, sizes of its model, and what changes its price or how it is searched.
constexpr std::string_view kHas[] = {
    "model",         "ranks",          "chunks",        "microbatches", "slices",
    "nodes",         "device",         "sequence",      "precision",    "micro_batch_size",
    "tensor",        "gather_again",   "data_parallel", "expert",       "context",
    "expert_tensor", "zero",           "recompute",     "layout",       "memory_limit",
    "overlap",       "layers",         "dim",           "hidden",       "vocabulary",
    "heads",         "kv_heads",       "head_dim",      "latent",       "window",
    "experts",       "top_k",          "expert_hidden", "predictors",   "dense_layers",
    "experts_every", "shared_experts", "shared_hidden", "pattern",      "mamba",
    "positions",     "qk_norm",        "tied",          "gated",        "sites",
    "across_sites",  "site_bandwidth", "site_latency"};
constexpr std::string_view kPrices[] = {"flops_efficiency",  "bandwidth_efficiency",
                                        "link_efficiency",   "network_efficiency",
                                        "device_launch",     "host_launch",
                                        "time_factor",       "hidden_communication",
                                        "hidden_gradients",  "implementation",
                                        "release",           "expert_imbalance",
                                        "fragmentation",     "machine",
                                        "sequence_parallel", "failures",
                                        "restart",           "storage_bandwidth"};

bool Has(std::span<const std::string_view> names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

// Divides the layers as the cost model does (cost_model/model_costs.cpp).
Result<std::vector<LayerRange>> StageLayersOf(const ModelOnCluster& model, int stages) {
  const ModelShape& shape = model.shape;
  if (!model.layout.empty()) {
    return ParseLayout(model.layout, {shape.layers, shape.predictors, stages});
  }
  PENSTOCK_TRY(std::vector<LayerRange> layers, SplitLayers(shape.layers, stages));
  layers.back().predictors = shape.predictors;
  return layers;
}

}  // namespace

Result<PlanJob> JobOf(const TrainingPlan& plan) {
  PlanJob job;
  job.scenario = plan.scenario;
  job.division = plan.division;
  job.algorithm = plan.schedule;
  job.chunks = plan.chunks;
  PENSTOCK_TRY(job.model, plan.scenario.Load());
  job.engine_model =
      EngineModelOf(job.shape(), plan.scenario.model.value_or(""), job.model.batch.sequence);
  PENSTOCK_TRY(PricedSchedule chosen, BuildPlan(plan));
  job.schedule = std::move(chosen.schedule);
  PENSTOCK_TRY(job.stages, StageLayersOf(job.model, job.schedule.placement.chain_length()));
  return job;
}

Status RefuseOtherSettings(const PlanJob& job, std::string_view framework,
                           std::initializer_list<std::string_view> expressed) {
  for (const ScenarioField& field : ScenarioFields()) {
    if (!IsGiven(field, job.scenario) || Has(kHas, field.name) || Has(kPrices, field.name) ||
        Has(expressed, field.name)) {
      continue;
    }
    if (IsNested(field)) return InvalidParameter(field.name, ": no setting of {}", framework);
    const std::string value = TextOf(field, job.scenario);
    if (value == "false" || value == "0" || value == "none") continue;
    return InvalidParameter(field.name, "{}: not expressed for {}", value, framework);
  }
  return {};
}

bool SitesDivideReplicas(const PlanJob& job) {
  const bool has_sites = job.scenario.sites.value_or(1) > 1;
  return has_sites && job.division.pipeline > 1 &&
         job.scenario.across_sites.value_or("pipeline") == "data";
}

Status CheckSites(const PlanJob& job, std::string_view framework, const AxisOrder& order) {
  const bool has_replicas_outermost = order.front() == Axis::kData;
  const bool has_sites = job.scenario.sites.value_or(1) > 1;
  const bool has_both = job.division.pipeline > 1 && job.division.copies() > 1;
  if (!has_sites || !has_both) return {};
  if (SitesDivideReplicas(job) == has_replicas_outermost) return {};
  return InvalidParameter(
      "across_sites", "{}: {} gives consecutive devices to {}; give {}, or fix one of both at 1",
      job.scenario.across_sites.value_or("pipeline"), framework,
      has_replicas_outermost ? "the ranks of a pipeline" : "the replicas of a stage",
      has_replicas_outermost ? "data" : "pipeline");
}

}  // namespace penstock
