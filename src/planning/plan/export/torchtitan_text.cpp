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

Result<std::string_view> ExchangeName(const PlanJob& job) {
  const std::string how = job.scenario.context_exchange.value_or("ring");
  if (how == "ring") return "alltoall";
  if (how == "all-gather") return "allgather";
  return InvalidParameter("context_exchange", "{}: {} has ring and all-gather", how, kTitan);
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
  // parallel_dims.py, seq_len_divisor.
  const std::int64_t divisor = std::int64_t{2} * division.tensor * division.context;
  if (const std::int64_t sequence = job.model.batch.sequence; sequence % divisor != 0) {
    return InvalidParameter("sequence", "{}: {} needs a multiple of {} with these ranks", sequence,
                            kTitan, divisor);
  }
  return CheckTorchtitan(job.divided());
}

// A basic string of TOML.
std::string TomlText(std::string_view text) {
  std::string quoted = "\"";
  for (const char each : text)
    quoted += each == '"' || each == '\\' ? std::string{'\\', each} : std::string{each};
  return quoted + '"';
}

std::string PipelineLines(const PlanJob& job, std::string_view placement, const std::string& csv) {
  const JobDivision& division = job.division;
  std::string lines = fmt::format("pipeline_parallel_degree = {}\n", division.pipeline);
  if (division.pipeline == 1) return lines;
  return lines + fmt::format(
                     "pipeline_parallel_schedule = \"{}\"  # the placement of the stages\n"
                     "pipeline_parallel_schedule_csv = {}\n"
                     "pipeline_parallel_microbatch_size = {}\n"
                     "module_fqns_per_model_part = {}\n",
                     placement, TomlText(csv), division.micro_batch, ModuleListsOf(job.stages));
}

}  // namespace

// The sections are the members of JobConfig (torchtitan/config/job_config.py).
Result<std::string> TorchtitanText(const PlanJob& job, const std::string& csv) {
  PENSTOCK_TRY(const KnownModel* known, ModelOf(job));
  PENSTOCK_TRY_STATUS(CheckDimensions(job));
  const FsdpSharding sharding = FsdpShardingOf(job);
  PENSTOCK_TRY(const std::string_view placement, PlacementName(job));
  PENSTOCK_TRY_STATUS(CheckPairs(job));
  PENSTOCK_TRY(const std::string_view exchange, ExchangeName(job));
  const JobDivision& division = job.division;
  const bool has_pipeline = division.pipeline > 1;
  const int local_batch = division.micro_batch * (has_pipeline ? division.microbatches : 1);
  const bool is_f32 = job.model.batch.precision == Precision::kFp32;
  std::string text = "# A plan for torchtitan 0.2 (run_train.sh with CONFIG_FILE).\n";
  text += fmt::format("[model]\nname = \"{}\"\nflavor = \"{}\"\n\n", known->titan_name,
                      known->titan_flavor);
  text += fmt::format(
      "[training]\nlocal_batch_size = {}\nglobal_batch_size = {}\nseq_len = {}\n"
      "dtype = \"float32\"\nmixed_precision_param = \"{}\"\nmixed_precision_reduce = "
      "\"float32\"\n\n",
      local_batch, job.global_batch(), job.model.batch.sequence, is_f32 ? "float32" : "bfloat16");
  text += fmt::format(
      "[parallelism]\ndata_parallel_replicate_degree = {}\ndata_parallel_shard_degree = {}\n"
      "fsdp_reshard_after_forward = \"{}\"\ntensor_parallel_degree = {}\n"
      "context_parallel_degree = {}\ncontext_parallel_rotate_method = \"{}\"\n"
      "expert_parallel_degree = {}\nexpert_tensor_parallel_degree = {}\n{}\n",
      sharding.replicate, sharding.shard, sharding.reshard, division.tensor, division.context,
      exchange, division.expert, division.expert > 1 ? job.division.experts_tensor() : 1,
      PipelineLines(job, placement, csv));
  text += fmt::format("[activation_checkpoint]\nmode = \"{}\"\n\n", division.recompute);
  text += fmt::format("[compile]\nenable = {}\n", job.scenario.implementation != "torch");
  return text;
}

}  // namespace penstock
