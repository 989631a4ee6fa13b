#include "config/run_schedule.h"

#include <algorithm>

#include "config/replicas.h"
#include "config/schedule_params.h"
#include "config/sequence_lengths.h"
#include "config/shard_vocabulary.h"
#include "config/stage_ranges.h"
#include "model_spec/model_spec.h"
#include "schedule/catalog.h"
#include "schedule/data_parallel.h"
#include "schedule/passes/passes.h"
#include "schedule/text/text.h"
#include "schedule/untrained.h"
#include "schedule/validate/validate.h"

namespace penstock {
namespace {

constexpr int kRanksLeast = 2;
constexpr int kRanksMost = 4;

int AutomaticRanks(int stages, int cores) {
  for (int ranks = std::min(kRanksMost, cores); ranks > kRanksLeast; --ranks) {
    if (stages % ranks == 0) return ranks;
  }
  return kRanksLeast;
}

// Returns 0 for schedules that have their own default.
int AutomaticChunks(const PipelineConfig& pipeline) {
  if (pipeline.schedule != "auto" && pipeline.schedule != "interleaved") return 0;
  return pipeline.stages % pipeline.ranks == 0 ? pipeline.stages / pipeline.ranks : 1;
}

// Maximum number of microbatches of a schedule without a flush. More of them have a smaller share
// of bubbles but take more memory.
constexpr int kStreamedMicrobatches = 1024;

// The schedule of one of `data` replicas of the pipeline.
Result<Schedule> FromCatalog(PipelineConfig& pipeline, int data, int cores, std::int64_t steps) {
  if (pipeline.ranks == 0) pipeline.ranks = AutomaticRanks(pipeline.stages, cores);
  PENSTOCK_TRY(ScheduleParams params, ParamsOf(pipeline));
  params.microbatches /= data;
  if (pipeline.chunks == 0) params.chunks = AutomaticChunks(pipeline);
  if (pipeline.schedule == "auto") pipeline.schedule = params.chunks > 1 ? "interleaved" : "1f1b";
  PENSTOCK_TRY(const Algorithm* algorithm, FindAlgorithm(pipeline.schedule));
  if (algorithm->supported.steps) {
    const int most = std::max(2, kStreamedMicrobatches / std::max(1, params.microbatches));
    params.steps = static_cast<int>(std::min<std::int64_t>(steps, most));
  }
  auto schedule = Generate(pipeline.schedule, params);
  if (schedule) return schedule;
  Error error = std::move(schedule).error();
  if (!error.parameter.empty()) error.parameter.insert(0, "pipeline.");
  return tl::unexpected(std::move(error));
}

Result<Schedule> FromCsv(const PipelineConfig& pipeline) {
  PENSTOCK_TRY_STATUS(RefuseForCsv(pipeline));
  PENSTOCK_TRY(Schedule schedule, LoadSchedule(pipeline.csv));
  if (pipeline.ranks != 0 && pipeline.ranks != schedule.ranks()) {
    return InvalidParameter("pipeline.ranks", "{}: {} has {} ranks", pipeline.ranks, pipeline.csv,
                            schedule.ranks());
  }
  if (pipeline.chunks != 0 && pipeline.chunks != schedule.placement.chunks()) {
    return InvalidParameter("pipeline.chunks", "{}: {} has {} chunks per rank", pipeline.chunks,
                            pipeline.csv, schedule.placement.chunks());
  }
  if (pipeline.slices != 1 && pipeline.slices != schedule.slices) {
    return InvalidParameter("pipeline.slices", "{}: {} has {} slices", pipeline.slices,
                            pipeline.csv, schedule.slices);
  }
  if (const Status valid = RequireValid(schedule, pipeline.csv); !valid) {
    return InvalidParameter("pipeline.csv", ": {}", valid.error().line());
  }
  return schedule;
}

// Rejects options that do not work without a flush, where no step waits for the global gradient
// norm.
Status CheckWithoutFlush(const Schedule& schedule, const TrainConfig& config) {
  const char* refused = nullptr;
  if (UpdateRuleOf(config.optimizer).needs_norm())
    refused = "optimizer.clip and optimizer.nonfinite=skip";
  if (!config.trace_steps.empty()) refused = "trace_steps";
  if (!config.pipeline.csv.empty() && config.seconds > 0) refused = "seconds with a CSV";
  if (refused != nullptr) {
    return InvalidParameter(ScheduleKey(config.pipeline),
                            ": schedule '{}' does not flush, so it cannot be used with {}",
                            schedule.algorithm, refused);
  }
  for (const auto& [key, steps] :
       {std::pair("steps", config.steps), std::pair("checkpoint.every", config.checkpoint.every),
        std::pair("validation.freq", config.validation.freq)}) {
    if (config.pipeline.csv.empty() || steps % schedule.steps == 0) continue;
    return InvalidParameter(key, "{} is not a multiple of the {} steps of {}", steps,
                            schedule.steps, config.pipeline.csv);
  }
  return {};
}

Status CheckTrainable(const Schedule& schedule, const TrainConfig& config) {
  const char* refused = nullptr;
  const bool flush = schedule.weights == WeightPolicy::kFlush;
  if (schedule.steps > 1 && flush) refused = "several steps with a flush";
  if (schedule.slices > 1 && !flush) refused = "slices along the sequence without a flush";
  if (IsUntrained(schedule)) refused = "stages without a part of the backward";
  if (refused != nullptr) {
    return InvalidParameter(ScheduleKey(config.pipeline),
                            ": schedule '{}' has {}, which training does not support",
                            schedule.algorithm, refused);
  }
  return flush ? Status() : CheckWithoutFlush(schedule, config);
}

}  // namespace

namespace {

Status CheckTensor(const TrainConfig& config) {
  const int ranks = config.parallel.tensor;
  if (ranks == 1) return {};
  if (config.parallel.shard_vocabulary) {
    return InvalidParameter("parallel.shard_vocabulary",
                            ": the {} ranks of parallel.tensor divide the embedding, the head and "
                            "the loss already; remove one of them",
                            ranks);
  }
  const bool has_whole_experts = config.parallel.expert_tensor == 1;
  if (const Status status = CheckTensorRanks(config.model, ranks, has_whole_experts); !status) {
    return tl::unexpected(Located(status.error(), config, {}));
  }
  return {};
}

bool BalancesExperts(const TrainConfig& config) {
  const Result<ModelShape> shape = ShapeOf(config.model);
  return shape && shape->experts && shape->experts->balance != ExpertShape::Balance::kNone;
}

// Padding would count as load of the experts, and would stand between the tokens of slices.
Status CheckContextLengths(const TrainConfig& config) {
  const int ranks = config.parallel.context;
  if (ranks == 1) return {};
  std::vector<std::int64_t> lengths = MicrobatchLengths(config);
  if (lengths.empty()) lengths = SliceLengths(config);
  const auto uneven = std::ranges::find_if(
      lengths, [&](std::int64_t tokens) { return TokensOfRank(config, tokens) * ranks != tokens; });
  if (uneven == lengths.end()) return {};
  const bool balances = BalancesExperts(config);
  if (config.pipeline.slices == 1 && !balances) return {};
  return InvalidParameter(
      "parallel.context", "{}: {} needs tokens that {} equal blocks divide, not {}", ranks,
      balances ? "model.balance" : "a schedule with slices", 2 * ranks, *uneven);
}

// Each of the context ranks has an equal share of the heads that a tensor rank has. They may share
// a head of keys and values.
Status CheckExchangedHeads(const TrainConfig& config) {
  const ParallelConfig& parallel = config.parallel;
  if (parallel.context_exchange != "ulysses") return {};
  PENSTOCK_TRY(const ModelShape shape, ShapeOf(config.model));
  const auto check = [&](std::string_view key, std::int64_t heads, bool may_repeat) -> Status {
    const std::int64_t own = std::max<std::int64_t>(heads / parallel.tensor, 1);
    if (own % parallel.context == 0 || (may_repeat && parallel.context % own == 0)) return {};
    return InvalidParameter("parallel.context_exchange",
                            "ulysses: {} ranks do not divide the {} heads of a rank ({})",
                            parallel.context, own, key);
  };
  PENSTOCK_TRY_STATUS(check("model.heads", shape.heads, /*may_repeat=*/false));
  if (shape.latent) return {};
  return check("model.kv_heads", shape.kv_heads, /*may_repeat=*/true);
}

Status CheckRing(const TrainConfig& config) {
  if (config.parallel.context_exchange != "ring") return {};
  if (config.pipeline.slices == 1) return {};
  return InvalidParameter("parallel.context_exchange",
                          "ring cannot be combined with a schedule with slices: use all-gather or "
                          "ulysses");
}

// With several ranks, the predictor of the rank with a sample's last token computes this token,
// too, and the router would count it as load of the experts.
Status CheckPredictor(const TrainConfig& config) {
  if (!HasPredictor(config) || !BalancesExperts(config)) return {};
  return InvalidParameter("parallel.context",
                          "{}: model.predictor needs model.balance=none with several ranks",
                          config.parallel.context);
}

Status CheckContext(const TrainConfig& config) {
  const int ranks = config.parallel.context;
  if (ranks == 1) return {};
  const ModelSpec* const model = FindModelSpec(config.model.name);
  if (model == nullptr || !model->divides_samples) {
    return InvalidParameter("parallel.context",
                            "{}: model {} does not divide its samples; leave it at 1", ranks,
                            config.model.name);
  }
  if (config.parallel.shard_vocabulary) {
    return InvalidParameter("parallel.context",
                            "{} cannot be combined with parallel.shard_vocabulary", ranks);
  }
  PENSTOCK_TRY_STATUS(CheckPredictor(config));
  PENSTOCK_TRY_STATUS(CheckExchangedHeads(config));
  return CheckRing(config);
}

}  // namespace

Status CheckParallel(const TrainConfig& config) {
  PENSTOCK_TRY_STATUS(CheckTensor(config));
  PENSTOCK_TRY_STATUS(CheckContext(config));
  const int data = config.parallel.data, expert = config.parallel.expert;
  if (const Status status = CheckExpertRanks(config.model, expert); !status) {
    return tl::unexpected(Located(status.error(), config, {"model.experts"}));
  }
  if (data % expert != 0) {
    return InvalidParameter("parallel.expert", "{} does not divide the {} replicas (parallel.data)",
                            expert, data);
  }
  const int microbatches = config.pipeline.microbatches;
  if (!config.pipeline.csv.empty() || microbatches % data == 0) return {};
  const auto error = InvalidParameter("pipeline.microbatches",
                                      "{} does not divide into {} equal shares (parallel.data)",
                                      microbatches, data);
  return tl::unexpected(Located(error.value(), config, {"parallel.data"}));
}

Result<Schedule> ScheduleOfRun(Schedule schedule, TrainConfig& config) {
  PipelineConfig& pipeline = config.pipeline;
  const int data = config.parallel.data;
  schedule = WithoutWaits(schedule);
  PENSTOCK_TRY_STATUS(CheckTrainable(schedule, config));
  PENSTOCK_TRY(schedule, ShardVocabulary(std::move(schedule), config));
  PENSTOCK_TRY_STATUS(CheckTensor(config));  // a file may shard the vocabulary
  auto replicated = AddDataParallelism(schedule, data);
  if (!replicated) return InvalidParameter("parallel.data", ": {}", replicated.error().line());
  schedule = *std::move(replicated);
  PENSTOCK_TRY(schedule, ShardSchedule(schedule, config.parallel));
  pipeline.ranks = schedule.ranks() / data;
  pipeline.chunks = schedule.placement.chunks();
  pipeline.stages = schedule.placement.chain_length();
  pipeline.microbatches = schedule.microbatches;
  pipeline.slices = schedule.slices;
  PENSTOCK_TRY_STATUS(CheckSlices(config));
  PENSTOCK_TRY_STATUS(CheckLengths(config, schedule));
  PENSTOCK_TRY_STATUS(CheckContext(config));  // likewise, and have slices
  PENSTOCK_TRY_STATUS(CheckContextLengths(config));
  PENSTOCK_TRY_STATUS(CheckExpertTensor(config));
  PENSTOCK_TRY_STATUS(SetShared(config, schedule));
  return schedule;
}

namespace {

Result<Schedule> Choose(TrainConfig& config, int cores) {
  PENSTOCK_TRY_STATUS(CheckParallel(config));
  PipelineConfig& pipeline = config.pipeline;
  PENSTOCK_TRY(Schedule schedule, pipeline.csv.empty() ? FromCatalog(pipeline, config.parallel.data,
                                                                     cores, config.steps)
                                                       : FromCsv(pipeline));
  return ScheduleOfRun(std::move(schedule), config);
}

}  // namespace

Result<Schedule> ChooseSchedule(TrainConfig& config, int cores) {
  auto schedule = Choose(config, cores);
  if (schedule) return schedule;
  return tl::unexpected(
      Located(std::move(schedule).error(), config, {ScheduleKey(config.pipeline)}));
}

Result<Schedule> ScheduleOver(const TrainConfig& config, std::int64_t steps) {
  PipelineConfig pipeline = config.pipeline;
  return pipeline.csv.empty() ? FromCatalog(pipeline, 1, 0, steps) : FromCsv(pipeline);
}

bool DrainsForCheckpoints(const TrainConfig& config, const Schedule& schedule) {
  return config.checkpoint.every > 0 &&
         (schedule.weights != WeightPolicy::kFlush || UpdateRuleOf(config.optimizer).steps_early());
}

}  // namespace penstock
