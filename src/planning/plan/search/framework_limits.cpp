#include "plan/search/framework_limits.h"

#include "cost_model/layer_work.h"
#include "cost_model/recompute.h"
#include "plan/search/engine_config.h"

namespace penstock {
namespace {

// Megatron-Core, TransformerConfig.recompute_modules: "moe_act: recompute the MoE MLP activation
// function".
Status CheckModules(const DividedModel& job) {
  const std::string& form = job.division.recompute;
  PENSTOCK_TRY(const Recompute recompute, ParseRecompute(form));
  if (recompute.method != Recompute::Method::kSelective) return {};
  const bool all_experts =
      job.shape.experts && job.shape.experts->dense_layers == 0 && job.shape.experts->every == 1;
  if ((recompute.modules & kActivation) != 0 && !all_experts) {
    return InvalidParameter(
        "recompute", "{}: Megatron-Core recomputes activation functions of experts only", form);
  }
  if ((recompute.modules & kLatentUp) != 0 && !job.shape.latent) {
    return InvalidParameter("recompute",
                            "{}: Megatron-Core has mla_up_proj only with latent attention", form);
  }
  return {};
}

// TransformerConfig.__post_init__ of Megatron-Core, and schedules.py, whose own schedules create
// the graphs and compute one microbatch's experts during another's exchange.
Status CheckExpertOptions(const DividedModel& job) {
  const JobDivision& division = job.division;
  if (!division.graphs_layers && !division.overlaps_experts) return {};
  const std::string_view option = division.overlaps_experts ? "overlapped_experts" : "cuda_graphs";
  PENSTOCK_TRY(const Recompute recompute, ParseRecompute(division.recompute));
  const bool is_selective = recompute.method == Recompute::Method::kSelective;
  const bool is_layer = recompute.method != Recompute::Method::kNone && !is_selective;
  if (is_layer || (is_selective && (recompute.modules & kExpertsModule) != 0)) {
    return InvalidParameter("recompute", "{}: Megatron-Core has no {} with it", division.recompute,
                            option);
  }
  if (division.pipeline == 1 || job.algorithm.empty()) return {};
  const bool interleaves =
      job.algorithm == "interleaved" && division.microbatches % division.pipeline == 0;
  if (interleaves || (job.algorithm == "1f1b" && !division.overlaps_experts)) return {};
  return InvalidParameter("schedule", "{}: Megatron-Core has {} only with {}", job.algorithm,
                          option,
                          division.overlaps_experts ? "interleaved" : "1f1b and interleaved");
}

Status RefuseOffload(const JobDivision& division, std::string_view framework) {
  if (division.offloaded_layers == 0) return {};
  return InvalidParameter("offloaded_layers", "{}: is not expressed for {}; give 0",
                          division.offloaded_layers, framework);
}

// With a pipeline, FSDP gathers weights once per step and sums gradients after the last microbatch
// if weights stay gathered (backward_maybe_with_nosync in torch's stage.py): that is `zero` 1.
// Without one, every microbatch gathers weights and shards gradients.
Status CheckFsdp(const DividedModel& job) {
  const JobDivision& division = job.division;
  const int zero = division.zero;
  if (division.copies() == 1) return {};
  const bool is_once = division.pipeline > 1 || division.microbatches == 1;
  if (zero == 0) {
    // parallelize.py: "DDP has not supported > 1D parallelism".
    const bool is_alone = division.tensor * division.pipeline * division.context == 1;
    if (is_alone) return {};
    return InvalidParameter(
        "zero", "0: torchtitan replicates weights only without other parallelism; give 1");
  }
  if (zero == 1 && is_once) return {};
  if (zero == 3 && division.pipeline == 1) return {};
  if (is_once) {
    return InvalidParameter(
        "zero", "{}: torchtitan sums the gradients of a pipeline once per step; give 1", zero);
  }
  return InvalidParameter("zero",
                          "{}: without a pipeline, torchtitan shards weights and gradients in "
                          "every microbatch; give 3",
                          zero);
}

// maybe_enable_amp in torchtitan/distributed/utils.py: without FSDP, tensor and pipeline ranks
// compute in the dtype of the weights.
Status CheckMixedPrecision(const DividedModel& job) {
  const JobDivision& division = job.division;
  if (job.precision == Precision::kFp32) return {};
  const std::string_view name = kPrecisionNames[static_cast<std::size_t>(job.precision)];
  if (job.precision != Precision::kBf16) {
    return InvalidParameter("precision", "{}: only bf16 and f32 are expressed for torchtitan",
                            name);
  }
  const bool has_fsdp = division.copies() > 1 && (division.zero > 0 || division.context > 1);
  if (has_fsdp || division.tensor * division.pipeline == 1) return {};
  return InvalidParameter("precision",
                          "{}: torchtitan computes in it only with shards of data or context "
                          "ranks, or without tensor and pipeline ranks",
                          name);
}

// torchtitan/distributed/parallel_dims.py: the ranks of FSDP and TP divide into EP and the rest,
// and without EP, the ranks of TP divide experts.
Status CheckExpertMesh(const DividedModel& job) {
  const JobDivision& division = job.division;
  if (!job.shape.experts) return {};
  const int divides = division.experts_tensor();
  if (division.expert == 1) {
    if (divides == division.tensor) return {};
    return InvalidParameter("expert_tensor",
                            "{}: without `expert`, torchtitan divides experts by `tensor` {}",
                            divides, division.tensor);
  }
  if (divides != 1) {
    return InvalidParameter("expert_tensor",
                            "{}: with `expert`, torchtitan gives ranks whole experts; give 1",
                            divides);
  }
  const int shards = (division.zero > 0 ? division.data : 1) * division.context * division.tensor;
  if (shards % (division.expert * divides) == 0) return {};
  return InvalidParameter("expert",
                          "{}: torchtitan divides experts by the {} ranks that shard a stage",
                          division.expert, shards);
}

}  // namespace

Status CheckPenstock(const DividedModel& job) {
  const JobDivision& division = job.division;
  if (job.shape.experts && division.experts_tensor() != division.tensor) {
    return InvalidParameter("expert_tensor",
                            "{}: plans of the engine divide experts by `tensor` {}",
                            division.experts_tensor(), division.tensor);
  }
  if (division.recompute != "none") {
    return InvalidParameter("recompute",
                            "{}: the engine recomputes what exceeds a number of bytes "
                            "(recompute.hold), not layers; give none",
                            division.recompute);
  }
  PENSTOCK_TRY_STATUS(RefuseOffload(division, "the engine"));
  // Replicas with different experts have shards of the optimizer's state (config/replicas.h).
  if (division.expert > 1 && division.zero == 0) {
    return InvalidParameter("zero", "0: the engine needs 1 with `expert` {}", division.expert);
  }
  const bool has_both = division.pipeline > 1 && division.copies() > 1;
  if (job.sites > 1 && has_both && division.across_sites != AcrossSites::kData) {
    return InvalidParameter("across_sites",
                            "pipeline: the engine gives consecutive devices to the ranks of a "
                            "pipeline; give data, or fix one of both at 1");
  }
  return CheckEngineRuns(job);
}

Status CheckMegatron(const DividedModel& job) {
  const JobDivision& division = job.division;
  if (division.zero > 1 && division.copies() > 1) {
    return InvalidParameter("zero", "{}: Megatron-Core's distributed optimizer is 1",
                            division.zero);
  }
  PENSTOCK_TRY_STATUS(RefuseOffload(division, "Megatron-Core"));
  PENSTOCK_TRY_STATUS(CheckExpertOptions(job));
  return CheckModules(job);
}

Status CheckTorchtitan(const DividedModel& job) {
  const JobDivision& division = job.division;
  if (division.recompute != "none" && division.recompute != "full") {
    return InvalidParameter("recompute", "{}: only none and full are expressed for torchtitan",
                            division.recompute);
  }
  if (job.shape.tied && division.pipeline > 1) {
    return InvalidParameter(
        "model", "{}: torchtitan ties embedding and head only without a pipeline", job.shape.name);
  }
  PENSTOCK_TRY_STATUS(RefuseOffload(division, "torchtitan"));
  PENSTOCK_TRY_STATUS(CheckFsdp(job));
  PENSTOCK_TRY_STATUS(CheckMixedPrecision(job));
  return CheckExpertMesh(job);
}

}  // namespace penstock
