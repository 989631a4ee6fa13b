#include <fmt/ranges.h>

#include "base/text/shell_word.h"
#include "plan/export/framework_texts.h"
#include "plan/export/known_models.h"
#include "plan/export/megatron_core.h"
#include "plan/export/stage_text.h"

namespace penstock {
namespace {

constexpr std::string_view kBridge = "Megatron-Bridge";

// Overrides of ConfigContainer (src/megatron/bridge/training/config.py) in Hydra's grammar, as the
// recipes of src/megatron/bridge/recipes set the same fields.
class BridgeOverrides {
 public:
  BridgeOverrides(const PlanJob& job, const KnownModel& known) : job_(job), known_(known) {}

  std::string Lines() {
    AddParallelism();
    AddStages();
    AddBatch();
    AddRecompute();
    AddStates();
    return std::move(lines_);
  }

 private:
  template <class Value>
  void Set(std::string_view key, const Value& value) {
    lines_ += fmt::format("  {}\n", ShellWord(fmt::format("{}={}", key, value)));
  }
  void SetOrNull(std::string_view key, const std::string& value) {
    Set(key, value.empty() ? "null" : value);
  }

  void AddParallelism() {
    const JobDivision& division = job_.division;
    Set("model.tensor_model_parallel_size", division.tensor);
    Set("model.pipeline_model_parallel_size", division.pipeline);
    SetOrNull("model.virtual_pipeline_model_parallel_size",
              job_.chunks > 1 ? fmt::format("{}", job_.chunks) : "");
    if (SitesDivideReplicas(job_)) Set("dist.use_tp_pp_dp_mapping", true);
    Set("model.context_parallel_size", division.context);
    if (division.context > 1) Set("model.cp_comm_type", ContextExchangeOf(job_));
    Set("model.sequence_parallel", division.tensor > 1 && job_.sequence_parallel());
    SetOverlap("tp_comm_overlap", assumed_.overlaps_tensor);
    // The recipes' buffers have the sizes of their own division.
    if (known_.has_overlap) Set("comm_overlap.tp_comm_overlap_cfg", "null");
    if (!job_.shape().experts) return;
    Set("model.expert_model_parallel_size", division.expert);
    Set("model.expert_tensor_parallel_size", job_.division.experts_tensor());
    AddExpertKernels();
  }

  void SetOverlap(std::string_view field, bool value) {
    Set(fmt::format("{}.{}", known_.has_overlap ? "comm_overlap" : "model", field), value);
  }

  void AddExpertKernels() {
    const Profile& profile = job_.model.batch.profile;
    const bool is_flex =
        profile.dispatcher == Dispatcher::kDeepEp || profile.dispatcher == Dispatcher::kHybridEp;
    const std::string_view name = kDispatcherNames[static_cast<std::size_t>(profile.dispatcher)];
    const bool gathers = profile.dispatcher == Dispatcher::kAllGather;
    Set("model.moe_token_dispatcher_type", is_flex ? "flex" : gathers ? "allgather" : "alltoall");
    SetOrNull("model.moe_flex_dispatcher_backend", is_flex ? std::string(name) : "");
    Set("model.moe_shared_expert_overlap", false);
    Set("model.moe_permute_fusion", assumed_.fuses_permutation);
    SetOverlap("overlap_moe_expert_parallel_comm", profile.overlapped_experts);
    const bool has_graphs = profile.graphs == CudaGraphs::kPartial;
    Set("model.cuda_graph_impl", has_graphs ? "transformer_engine" : "none");
    if (has_graphs) Set("model.cuda_graph_scope", "[attn,moe_router,moe_preprocess]");
  }

  void AddStages() {
    const bool has_layout = job_.division.pipeline > 1;
    Set("model.pipeline_model_parallel_layout",
        has_layout ? fmt::format("\"{}\"", MegatronLayoutOf(job_.stages)) : "null");
    for (const char* key :
         {"account_for_embedding_in_pipeline_split", "account_for_loss_in_pipeline_split"}) {
      Set(fmt::format("model.{}", key), false);
    }
    for (const char* key :
         {"num_layers_in_first_pipeline_stage", "num_layers_in_last_pipeline_stage"}) {
      Set(fmt::format("model.{}", key), "null");
    }
    SetOrNull("model.mtp_num_layers",
              job_.shape().predictors > 0 ? fmt::format("{}", job_.shape().predictors) : "");
  }

  void AddBatch() {
    Set("train.micro_batch_size", job_.division.micro_batch);
    Set("train.global_batch_size", job_.global_batch());
    Set("dataset.seq_length", job_.model.batch.sequence);
  }

  void AddRecompute() {
    const MegatronRecompute recompute = MegatronRecomputeOf(job_);
    SetOrNull("model.recompute_granularity", recompute.granularity);
    SetOrNull("model.recompute_method", recompute.method);
    SetOrNull("model.recompute_num_layers",
              recompute.layers > 0 ? fmt::format("{}", recompute.layers) : "");
    SetOrNull(
        "model.recompute_modules",
        recompute.modules.empty() ? "" : fmt::format("[{}]", fmt::join(recompute.modules, ",")));
  }

  void AddStates() {
    const bool shards = job_.division.zero == 1;
    Set("ddp.use_distributed_optimizer", shards);
    Set("optimizer.use_distributed_optimizer", shards);
    Set("ddp.overlap_param_gather", shards);
    Set("ddp.overlap_grad_reduce", true);
    Set("ddp.grad_reduce_in_fp32", assumed_.reduces_in_fp32);
    // It replaces the setting of DDP.
    if (known_.has_precision) {
      Set("mixed_precision.grad_reduce_in_fp32", assumed_.reduces_in_fp32);
    }
  }

  const PlanJob& job_;
  const KnownModel& known_;
  MegatronAssumptions assumed_ = AssumptionsOf(job_);
  std::string lines_;
};

// Refuses a price of something else than what the recipe runs.
Status CheckAssumptions(const PlanJob& job, const KnownModel& known) {
  if (job.scenario.implementation == "megatron") {
    return InvalidParameter("implementation", "megatron: {} runs transformer-engine", kBridge);
  }
  if (job.model.batch.profile.graphs == CudaGraphs::kFull) {
    return InvalidParameter("cuda_graphs", "full: is not expressed for {}; give partial", kBridge);
  }
  // Their mixed precision is the name of one that sums in fp32, and precedes.
  if (!known.has_precision && !AssumptionsOf(job).reduces_in_fp32) {
    return InvalidParameter("fp32_gradients", "false: {} of {} sums gradients in fp32; give true",
                            known.bridge_recipe, kBridge);
  }
  return {};
}

}  // namespace

Result<std::string> BridgeText(const PlanJob& job) {
  PENSTOCK_TRY_STATUS(CheckOwnSchedule(job, kBridge));
  PENSTOCK_TRY_STATUS(CheckMegatronCore(job, kBridge));
  PENSTOCK_TRY_STATUS(RefuseOtherSettings(
      job, kBridge,
      {"context_exchange", "dispatcher", "overlapped_experts", "cuda_graphs", "fp32_gradients"}));
  const KnownModel* const known = FindKnownModel(job.shape());
  if (known == nullptr || known->bridge_recipe.empty()) {
    return InvalidParameter("model", "{}: no known recipe of {} has these sizes", job.shape().name,
                            kBridge);
  }
  if (job.model.batch.precision != Precision::kBf16) {
    return InvalidParameter("precision", "{}: the recipes of {} compute in bf16",
                            *job.scenario.precision, kBridge);
  }
  PENSTOCK_TRY_STATUS(CheckAssumptions(job, *known));
  const Cluster& cluster = job.model.cluster;
  return fmt::format(
      "# A plan as overrides of a recipe of Megatron-Bridge, for bash:\n"
      "#   . megatron_bridge.sh\n"
      "#   torchrun --nnodes {} --nproc-per-node {} ... scripts/training/run_recipe.py \\\n"
      "#     \"${{BRIDGE_ARGS[@]}}\"\n"
      "BRIDGE_ARGS=(\n  --recipe {}\n  --mode pretrain\n{})\n",
      cluster.nodes, cluster.devices_per_node, known->bridge_recipe,
      BridgeOverrides(job, *known).Lines());
}

}  // namespace penstock
