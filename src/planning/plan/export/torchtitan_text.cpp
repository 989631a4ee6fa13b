#include "plan/export/framework_texts.h"
#include "plan/export/known_models.h"
#include "plan/export/stage_text.h"
#include "schedule/pairs.h"
#include "schedule/text/text.h"

namespace penstock {
namespace {

constexpr std::string_view kTitan = "torchtitan";

// How FSDP divides states (CheckFsdp in plan/search/framework_limits.cpp says why).
struct FsdpSharding {
  int replicate = 1, shard = 1;
  const char* reshard = "default";
};

FsdpSharding FsdpShardingOf(const PlanJob& job) {
  const JobDivision& division = job.division;
  if (job.division.copies() == 1) return {};
  if (division.zero == 0) return {.replicate = division.data};
  return {.shard = division.data, .reshard = division.zero == 3 ? "always" : "never"};
}

// The schedule of torch that places stages in the same way (pipeline_module_split).
Result<std::string_view> PlacementName(const PlanJob& job) {
  const Schedule& schedule = job.schedule;
  PENSTOCK_TRY_STATUS(RequireTorchOps(schedule));
  const int ranks = job.division.pipeline, chunks = schedule.placement.chunks();
  if (schedule.placement == Placement::Linear(ranks)) return "1F1B";
  if (schedule.placement == Placement::Looped(ranks, chunks)) return "Interleaved1F1B";
  if (schedule.placement == Placement::Vee(ranks)) {
    return job.algorithm == "dualpipev" ? "DualPipeV" : "ZBVZeroBubble";
  }
  return InvalidParameter("schedule", "{}: {} places stages in a loop or a V", job.algorithm,
                          kTitan);
}

Status CheckPairs(const PlanJob& job) {
  if (!HasPairs(job.schedule) || job.scenario.overlap == "sum") return {};
  return InvalidParameter("overlap",
                          "{}: {} runs the pairs of a file one after the other, as `overlap` sum",
                          job.scenario.overlap.value_or("max"), kTitan);
}

Status CheckExchange(const PlanJob& job) {
  const std::string how = job.scenario.context_exchange.value_or("ring");
  if (how == "all-gather" || job.division.context == 1) return {};
  return InvalidParameter("context_exchange", "{}: {} has all-gather", how, kTitan);
}

Result<const KnownModel*> ModelOf(const PlanJob& job) {
  const ModelShape& shape = job.shape();
  const KnownModel* const known = FindKnownModel(shape);
  if (known == nullptr || known->titan_flavor.empty()) {
    return InvalidParameter("model", "{}: no known flavor of {} has these sizes", shape.name,
                            kTitan);
  }
  if (shape.predictors > 0) {
    return InvalidParameter("predictors", "{}: {} predicts one token", shape.predictors, kTitan);
  }
  return known;
}

Status CheckDimensions(const PlanJob& job) {
  PENSTOCK_TRY_STATUS(RefuseOtherSettings(job, kTitan, {"context_exchange"}));
  PENSTOCK_TRY_STATUS(CheckSites(job, kTitan, kPipelineOutermost));
  const JobDivision& division = job.division;
  if (division.tensor > 1 && !job.sequence_parallel()) {
    return InvalidParameter("sequence_parallel", "false: {} divides the sequence with `tensor`",
                            kTitan);
  }
  // seq_len_divisor in trainer.py.
  const std::int64_t divisor =
      std::int64_t{division.tensor} * (division.context > 1 ? 2 * division.context : 1);
  if (const std::int64_t sequence = job.model.batch.sequence; sequence % divisor != 0) {
    return InvalidParameter("sequence", "{}: {} needs a multiple of {} with these ranks", sequence,
                            kTitan, divisor);
  }
  return CheckTorchtitan(job.divided());
}

// The function of the model's config_registry.py that the plan changes.
std::string_view BaseOf(std::string_view model) {
  if (model == "qwen3") return "qwen3_0_6b";
  return model == "llama3" ? "llama3_8b" : "deepseek_v3_16b";
}

// A text in Python, on one line.
std::string PythonText(std::string_view text) {
  std::string quoted = "\"";
  for (const char each : text)
    quoted += each == '"' || each == '\\' ? std::string{'\\', each} : std::string{each};
  return quoted + '"';
}

std::string PipelineLines(const PlanJob& job, std::string_view placement, const std::string& csv) {
  const JobDivision& division = job.division;
  std::string lines = fmt::format("        pipeline_parallel_degree={},\n", division.pipeline);
  if (division.pipeline == 1) return lines;
  return lines + fmt::format(
                     "        pipeline_parallel_schedule=\"{}\",  # the placement of the stages\n"
                     "        pipeline_parallel_schedule_csv={},\n"
                     "        module_fqns_per_model_part={},\n"
                     "        **microbatches,\n",
                     placement, PythonText(csv), ModuleListsOf(job.stages));
}

// The batch, in samples as 0.3 has it, and in tokens as its main branch does.
std::string BatchLines(const PlanJob& job) {
  const JobDivision& division = job.division;
  const std::int64_t sequence = job.model.batch.sequence;
  const int parts = division.pipeline > 1 ? division.microbatches : 1;
  return fmt::format(
      "    if \"num_pp_microbatches\" in ParallelismConfig.__dataclass_fields__:  # after 0.3\n"
      "        microbatches = dict(num_pp_microbatches={0})\n"
      "        batch = dict(num_tokens_per_microbatch_per_dp_rank={1}, "
      "num_tokens_per_train_step={2}, max_context_length={3})\n"
      "    else:\n"
      "        microbatches = dict(pipeline_parallel_microbatch_size={4})\n"
      "        batch = dict(local_batch_size={5}, global_batch_size={6}, seq_len={3})\n",
      parts, division.micro_batch * sequence, job.global_batch() * sequence, sequence,
      division.micro_batch, division.micro_batch * parts, job.global_batch());
}

constexpr std::string_view kImports =
    "import dataclasses\n\n"
    "from torchtitan.components.loss import ChunkedLossWrapper, CrossEntropyLoss\n"
    "from torchtitan.config import CompileConfig, ParallelismConfig\n"
    "from torchtitan.distributed.activation_checkpoint import FullAC\n"
    "from torchtitan.models.{0} import config_registry, model_registry\n"
    "from torchtitan.models.common.config_utils import decoder_vocab_size\n"
    "from torchtitan.trainer import Trainer\n\n\n";

}  // namespace

// The fields are those of torchtitan/config/configs.py.
Result<std::string> TorchtitanText(const PlanJob& job, const std::string& csv) {
  PENSTOCK_TRY(const KnownModel* known, ModelOf(job));
  PENSTOCK_TRY_STATUS(CheckDimensions(job));
  const FsdpSharding sharding = FsdpShardingOf(job);
  PENSTOCK_TRY(const std::string_view placement, PlacementName(job));
  PENSTOCK_TRY_STATUS(CheckPairs(job));
  PENSTOCK_TRY_STATUS(CheckExchange(job));
  const JobDivision& division = job.division;
  const bool is_f32 = job.model.batch.precision == Precision::kFp32;
  std::string text =
      "# A plan for torchtitan 0.3 and later. With this file's folder in PYTHONPATH:\n"
      "# MODULE=torchtitan_plan CONFIG=plan ./run_train.sh\n";
  text += fmt::format(kImports, known->titan_name);
  text += fmt::format(
      "def plan() -> Trainer.Config:\n"
      "    config = config_registry.{}()  # its data, tokenizer and learning rate are to be "
      "changed\n"
      "    config.model_spec = model_registry(\"{}\", attn_backend=\"flex\")\n"
      "    vocabulary = decoder_vocab_size(config.model_spec)\n"
      "    config.loss = "
      "ChunkedLossWrapper.Config(loss_fn=CrossEntropyLoss.Config(global_vocab_size=vocabulary))\n",
      BaseOf(known->titan_name), known->titan_flavor);
  text += BatchLines(job);
  text += fmt::format(
      "    config.training = dataclasses.replace(\n"
      "        config.training, **batch, dtype=\"float32\", mixed_precision_param=\"{}\", "
      "mixed_precision_reduce=\"float32\",\n"
      "        disable_cuda_graphs=True,\n    )\n",
      is_f32 ? "float32" : "bfloat16");
  text += fmt::format(
      "    config.parallelism = ParallelismConfig(\n"
      "        data_parallel_replicate_degree={},\n        data_parallel_shard_degree={},\n"
      "        fsdp_reshard_after_forward=\"{}\",\n        tensor_parallel_degree={},\n"
      "        context_parallel_degree={},\n        expert_parallel_degree={},\n{}    )\n",
      sharding.replicate, sharding.shard, sharding.reshard, division.tensor, division.context,
      division.expert, PipelineLines(job, placement, csv));
  text += fmt::format("    config.activation_checkpoint = {}\n",
                      division.recompute == "full" ? "FullAC.Config()" : "None");
  text += fmt::format("    config.compile = CompileConfig(enable={})\n    return config\n",
                      job.scenario.implementation != "torch" ? "True" : "False");
  return text;
}

}  // namespace penstock
