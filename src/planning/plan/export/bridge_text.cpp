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
    if (known_.overlaps_tensor) Set("comm_overlap.tp_comm_overlap", false);
    if (!job_.shape().experts) return;
    Set("model.expert_model_parallel_size", division.expert);
    Set("model.expert_tensor_parallel_size", job_.division.experts_tensor());
    Set("model.moe_token_dispatcher_type", "alltoall");
    Set("model.moe_flex_dispatcher_backend", "null");
    Set("model.moe_shared_expert_overlap", false);
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
    Set("ddp.grad_reduce_in_fp32", true);
  }

  const PlanJob& job_;
  const KnownModel& known_;
  std::string lines_;
};

}  // namespace

Result<std::string> BridgeText(const PlanJob& job) {
  PENSTOCK_TRY_STATUS(CheckOwnSchedule(job, kBridge));
  PENSTOCK_TRY_STATUS(CheckMegatronCore(job, kBridge));
  PENSTOCK_TRY_STATUS(RefuseOtherSettings(job, kBridge, {"context_exchange"}));
  const KnownModel* const known = FindKnownModel(job.shape());
  if (known == nullptr || known->bridge_recipe.empty()) {
    return InvalidParameter("model", "{}: no known recipe of {} has these sizes", job.shape().name,
                            kBridge);
  }
  if (job.model.batch.precision != Precision::kBf16) {
    return InvalidParameter("precision", "{}: the recipes of {} compute in bf16",
                            *job.scenario.precision, kBridge);
  }
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
