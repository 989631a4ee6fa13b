#include "train/setup.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <thread>
#include <tuple>

#include "base/index.h"
#include "schedule/catalog.h"
#include "schedule/data_parallel.h"
#include "schedule/passes/lanes.h"
#include "schedule/passes/passes.h"
#include "schedule/text/text.h"
#include "schedule/validate/validate.h"
#include "train/schedule_params.h"
#include "train/shard_vocabulary.h"

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
  if (params.microbatches % data != 0) {
    return InvalidArgument(
        "pipeline.microbatches {} does not divide into {} equal shares (parallel.data)",
        params.microbatches, data);
  }
  params.microbatches /= data;
  if (pipeline.chunks == 0) params.chunks = AutomaticChunks(pipeline);
  if (pipeline.schedule == "auto") pipeline.schedule = params.chunks > 1 ? "interleaved" : "1f1b";
  PENSTOCK_TRY(const Algorithm* algorithm, FindAlgorithm(pipeline.schedule));
  if (algorithm->knobs.steps) {
    const int most = std::max(2, kStreamedMicrobatches / std::max(1, params.microbatches));
    params.steps = static_cast<int>(std::min<std::int64_t>(steps, most));
  }
  auto schedule = Generate(pipeline.schedule, params);
  if (!schedule) return tl::unexpected(NameKeys(std::move(schedule).error()));
  return schedule;
}

Result<Schedule> FromCsv(const PipelineConfig& pipeline) {
  PENSTOCK_TRY_STATUS(RefuseForCsv(pipeline));
  PENSTOCK_TRY(Schedule schedule, LoadSchedule(pipeline.csv));
  if (pipeline.ranks != 0 && pipeline.ranks != schedule.ranks()) {
    return InvalidArgument("pipeline.ranks {}: {} has {} ranks", pipeline.ranks, pipeline.csv,
                           schedule.ranks());
  }
  if (pipeline.chunks != 0 && pipeline.chunks != schedule.placement.chunks()) {
    return InvalidArgument("pipeline.chunks {}: {} has {} chunks per rank", pipeline.chunks,
                           pipeline.csv, schedule.placement.chunks());
  }
  if (pipeline.slices != 1 && pipeline.slices != schedule.slices) {
    return InvalidArgument("pipeline.slices {}: {} has {} slices", pipeline.slices, pipeline.csv,
                           schedule.slices);
  }
  const std::vector<Fault> faults = Validate(schedule, {.max_faults = 1});
  if (faults.empty()) return schedule;
  const Fault& fault = faults.front();
  std::string where;
  if (fault.rank >= 0) where += fmt::format("rank {}, ", fault.rank);
  if (fault.position >= 0) where += fmt::format("position {}, ", fault.position);
  return InvalidArgument(
      "pipeline.csv: {} is not a valid schedule: {}{}: {} ('penstock validate' shows all)",
      pipeline.csv, where, fault.action, fault.reason);
}

// Returns the key that the schedule comes from.
const char* ScheduleKey(const TrainConfig& config) {
  return config.pipeline.csv.empty() ? "pipeline.schedule" : "pipeline.csv";
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
    return InvalidArgument("{}: schedule '{}' does not flush, so it cannot be used with {}",
                           ScheduleKey(config), schedule.algorithm, refused);
  }
  for (const std::int64_t steps : {config.steps, config.checkpoint.every, config.validation.freq}) {
    if (config.pipeline.csv.empty() || steps % schedule.steps == 0) continue;
    return InvalidArgument(
        "steps, checkpoint.every, validation.freq: {} is not a multiple of the {} steps of {}",
        steps, schedule.steps, config.pipeline.csv);
  }
  return {};
}

Status CheckTrainable(const Schedule& schedule, const TrainConfig& config) {
  const char* refused = nullptr;
  const bool flush = schedule.weights == WeightPolicy::kFlush;
  if (schedule.steps > 1 && flush) refused = "several steps with a flush";
  if (schedule.slices > 1 && !flush) refused = "slices along the sequence without a flush";
  if (refused != nullptr) {
    return InvalidArgument("{}: schedule '{}' has {}, which training does not support",
                           ScheduleKey(config), schedule.algorithm, refused);
  }
  return flush ? Status() : CheckWithoutFlush(schedule, config);
}

Status CheckSlices(const TrainConfig& config) {
  const int slices = config.pipeline.slices;
  const std::vector<std::int64_t>& lengths = config.pipeline.slice_lengths;
  const std::int64_t sum = std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
  if (!lengths.empty() && (lengths.size() != Index(slices) || sum != config.model.sequence)) {
    return InvalidArgument(
        "pipeline.slice_lengths: {} lengths with {} tokens in total, but there are {} slices of a "
        "sequence of {}",
        lengths.size(), sum, slices, config.model.sequence);
  }
  if (slices == 1) return {};
  if (config.data.document_mask) {
    return InvalidArgument(
        "data.document_mask: needs whole sequences, not the {} slices of pipeline.slices", slices);
  }
  if (lengths.empty() && config.model.sequence % slices != 0) {
    return InvalidArgument(
        "model.sequence {} does not divide into {} equal slices: set "
        "pipeline.slice_lengths",
        config.model.sequence, slices);
  }
  if (config.compiled.empty()) return {};
  return InvalidArgument(
      "compiled: stages in files run whole sequences, not {} slices (pipeline.slices); remove it",
      slices);
}

Status CheckLengths(const TrainConfig& config, const Schedule& schedule) {
  const std::vector<std::int64_t>& lengths = config.data.lengths;
  if (lengths.empty()) return {};
  if (std::ranges::max(lengths) != config.model.sequence) {
    return InvalidArgument(
        "data.lengths: the longest is {}, but model.sequence is {}; set it to {}",
        std::ranges::max(lengths), config.model.sequence, std::ranges::max(lengths));
  }
  if (config.pipeline.microbatches % std::ssize(lengths) != 0) {
    return InvalidArgument(
        "data.lengths: the microbatches of a step ({}) are not a multiple of the {} lengths",
        config.pipeline.microbatches, lengths.size());
  }
  const auto predictor = config.model.options.find("predictor");
  const char* refused = nullptr;
  if (config.pipeline.slices > 1) refused = "pipeline.slices";
  if (config.parallel.expert > 1) refused = "parallel.expert";
  if (schedule.weights != WeightPolicy::kFlush) refused = "a schedule without a flush";
  if (!config.compiled.empty()) refused = "compiled";
  if (!config.data.blend.empty()) refused = "data.blend";
  if (predictor != config.model.options.end() && predictor->second != "0") {
    refused = "model.predictor";
  }
  if (refused == nullptr) return {};
  return InvalidArgument("data.lengths cannot be used with {}: remove one of them", refused);
}

}  // namespace

std::vector<std::int64_t> MicrobatchLengths(const TrainConfig& config) {
  if (config.data.lengths.empty()) return {};
  std::vector<std::int64_t> lengths;
  for (int microbatch = 0; microbatch < config.pipeline.microbatches; ++microbatch) {
    lengths.push_back(config.data.lengths[Index(microbatch) % config.data.lengths.size()]);
  }
  return lengths;
}

std::int64_t TokensPerStep(const TrainConfig& config) {
  const std::vector<std::int64_t> lengths = MicrobatchLengths(config);
  const std::int64_t of_samples =
      lengths.empty() ? config.pipeline.microbatches * config.model.sequence
                      : std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
  return config.batch * of_samples;
}

std::vector<std::int64_t> SliceLengths(const TrainConfig& config) {
  if (!config.pipeline.slice_lengths.empty()) return config.pipeline.slice_lengths;
  const std::size_t slices = config.pipeline.slices;
  return std::vector<std::int64_t>(slices, config.model.sequence / config.pipeline.slices);
}

int Cores() { return std::max(1, static_cast<int>(std::thread::hardware_concurrency())); }

Result<Schedule> ChooseSchedule(TrainConfig& config, int cores) {
  PipelineConfig& pipeline = config.pipeline;
  const int data = config.parallel.data;
  PENSTOCK_TRY_STATUS(CheckExpertRanks(config.model, config.parallel.expert));
  if (data % config.parallel.expert != 0) {
    return InvalidArgument("parallel.expert {} does not divide the {} replicas (parallel.data)",
                           config.parallel.expert, data);
  }
  PENSTOCK_TRY(Schedule schedule, pipeline.csv.empty()
                                      ? FromCatalog(pipeline, data, cores, config.steps)
                                      : FromCsv(pipeline));
  PENSTOCK_TRY_STATUS(CheckTrainable(schedule, config));
  PENSTOCK_TRY(schedule, ShardVocabulary(std::move(schedule), config));
  auto replicated = AddDataParallelism(schedule, data);
  if (!replicated) return InvalidArgument("parallel.data: {}", replicated.error().line());
  schedule = *std::move(replicated);
  PENSTOCK_TRY(schedule, ShardSchedule(schedule, config.parallel));
  pipeline.ranks = schedule.ranks() / data;
  pipeline.chunks = schedule.placement.chunks();
  pipeline.stages = schedule.placement.chain_length();
  pipeline.microbatches = schedule.microbatches;
  pipeline.slices = schedule.slices;
  PENSTOCK_TRY_STATUS(CheckSlices(config));
  PENSTOCK_TRY_STATUS(CheckLengths(config, schedule));
  PENSTOCK_TRY_STATUS(SetShared(config, schedule));
  return schedule;
}

Result<std::vector<LayerRange>> StageRanges(const TrainConfig& config, int stages) {
  PENSTOCK_TRY(std::vector<LayerRange> ranges,
               SplitLayers(config.model.layers, stages, config.pipeline.stage_layers));
  for (LayerRange& range : ranges) range.sharded_vocabulary = config.parallel.shard_vocabulary;
  return ranges;
}

Status SetShared(const TrainConfig& config, Schedule& schedule) {
  PENSTOCK_TRY(const std::vector<LayerRange> ranges,
               StageRanges(config, schedule.placement.chain_length()));
  schedule.shared.clear();
  for (const SharedParameter& parameter : SharedParameters(config.model, ranges)) {
    if (schedule.weights != WeightPolicy::kFlush) {
      return InvalidArgument(
          "{}: stages {} share {}, but schedule '{}' does not flush, so they would update it at "
          "different times: use a schedule that flushes{}{}",
          ScheduleKey(config), fmt::join(parameter.stages, ", "), parameter.name,
          schedule.algorithm, parameter.instead.empty() ? "" : ", or ", parameter.instead);
    }
    schedule.shared.push_back(parameter.stages);
  }
  return {};
}

Result<Schedule> ScheduleOver(const TrainConfig& config, std::int64_t steps) {
  PipelineConfig pipeline = config.pipeline;
  return pipeline.csv.empty() ? FromCatalog(pipeline, 1, 0, steps) : FromCsv(pipeline);
}

int ExpertPartOf(const ParallelConfig& parallel, const Schedule& schedule, int chain) {
  const int chains_per_replica = schedule.placement.replicas() / parallel.data;
  return chain / chains_per_replica % parallel.expert;
}

LayerRange WithExpertPart(LayerRange range, const ParallelConfig& parallel,
                          const Schedule& schedule, int chain) {
  range.expert_ranks = parallel.expert;
  range.expert_rank = ExpertPartOf(parallel, schedule, chain);
  return range;
}

// Replicas with different experts have different gradient norms, which only ranks with shards add.
int ZeroOf(const ParallelConfig& parallel, const Schedule& schedule) {
  if (schedule.placement.replicas() == 1) return 0;
  if (parallel.expert > 1) return std::max(parallel.zero, 1);
  return parallel.data == 1 ? std::min(parallel.zero, 1) : parallel.zero;
}

bool HasReplicaGroups(const ParallelConfig& parallel, const Schedule& schedule) {
  const int zero = ZeroOf(parallel, schedule);
  return zero >= 2 || (zero == 1 && schedule.placement.replicas() == parallel.data);
}

Result<Schedule> ShardSchedule(const Schedule& schedule, const ParallelConfig& parallel) {
  const int zero = ZeroOf(parallel, schedule);
  constexpr unsigned kGathers = OpBit(Op::kUnshard) | OpBit(Op::kReshard);
  for (const auto& [ops, names, least] : {std::tuple(kGathers, "UNSHARD and RESHARD", 3),
                                          std::tuple(OpBit(Op::kReduceGrad), "REDUCE_GRAD", 2)}) {
    if (zero >= least || !HasOps(schedule, ops)) continue;
    return InvalidArgument(
        "pipeline.csv: {} are for shards: set parallel.zero={} and parallel.data to at least 2, or "
        "remove them from the file",
        names, least);
  }
  if (zero < 2) return schedule;
  if (zero == 2) return AddReduceGrad(schedule);
  PENSTOCK_TRY(const Schedule sharded, AddSharding(schedule, {.lookahead = parallel.lookahead,
                                                              .residency = parallel.residency}));
  return AddReduceGrad(sharded);  // a file may have UNSHARD alone
}

// Norms are added shard by shard for all values of `zero`, so that they are bitwise the same if the
// shards are.
int ShardsOfStage(const ParallelConfig& parallel, const Schedule& schedule) {
  if (ZeroOf(parallel, schedule) >= 2) return parallel.data;
  return parallel.data > 1 || parallel.zero > 0 ? schedule.placement.replicas() : 1;
}

int ReplicasPerShard(const ParallelConfig& parallel, const Schedule& schedule) {
  const int replicas = schedule.placement.replicas();
  const int zero = ZeroOf(parallel, schedule);
  if (zero == 0) return replicas;
  return zero == 1 ? 1 : replicas / parallel.data;
}

bool DrainsForCheckpoints(const TrainConfig& config, const Schedule& schedule) {
  return config.checkpoint.every > 0 &&
         (schedule.weights != WeightPolicy::kFlush || UpdateRuleOf(config.optimizer).steps_early());
}

}  // namespace penstock
