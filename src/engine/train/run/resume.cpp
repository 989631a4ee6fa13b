#include "train/run/resume.h"

#include <ATen/ops/isfinite.h>

#include <algorithm>
#include <filesystem>

#include "base/byte_stream.h"
#include "base/log.h"
#include "checkpoint/checkpoint_folder.h"
#include "train/data/run_tokenizer.h"
#include "train/huggingface/weights.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

// Returns the complete checkpoints of a folder, in descending order of steps. Logs newer ones that
// are unfinished.
Result<std::vector<std::string>> CheckpointsIn(const std::string& folder, std::FILE* log) {
  PENSTOCK_TRY(const std::vector<StoredCheckpoint> stored, ListAllCheckpoints(folder));
  std::vector<std::string> paths;
  for (const StoredCheckpoint& one : stored) {
    if (one.complete) {
      paths.push_back(one.path);
    } else if (paths.empty()) {
      Log(log, "resume: {} was not completed: it has no manifest\n", one.path);
    }
  }
  return paths;
}

// Returns the checkpoints to try, best first; only `path` if it is a checkpoint or a file.
Result<std::vector<std::string>> Candidates(const std::string& path, std::FILE* log) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return std::vector<std::string>{path};
  if (IsCheckpointFolder(path)) {
    const fs::path plain = fs::path(path).lexically_normal();  // "step-3/" has no file name
    return std::vector<std::string>{(plain.has_filename() ? plain : plain.parent_path()).string()};
  }
  PENSTOCK_TRY(std::vector<std::string> paths, CheckpointsIn(CheckpointFolder(path), log));
  if (paths.empty()) return CheckpointsIn(path, log);
  return paths;
}

// A run's weights mean the tokens that it was trained on. Accepts a checkpoint whose tokenizer is
// gone.
Status CheckTokenizer(const Checkpoint& from, const OpenedTokenizer& tokenizer) {
  const auto before = TokenizerOfRun(from.path(), from.info.config.data);
  if (!before || before->digest == tokenizer.digest) return {};
  return InvalidArgument("{} was trained with the tokenizer {}, not with {}: set data.tokenizer={}",
                         from.path(), before->name(), tokenizer.name(), before->name());
}

Status CheckFits(const Checkpoint& from, const TrainConfig& config, std::FILE* log) {
  if (!from.has_optimizer()) {
    return InvalidArgument("{} has no optimizer state: resume from one of a run's checkpoints",
                           from.path());
  }
  if (from.info.step > config.steps) {
    return InvalidArgument("{} is after step {}, but 'steps' is only {}: set a larger 'steps'",
                           from.path(), from.info.step, config.steps);
  }
  std::string changed;
  for (const KeyDifference& each : DifferentKeys(from.info.config, config)) {
    if (each.changes == Changes::kModel) {
      return InvalidArgument("{} is of another model: {} is {} there, {} here", from.path(),
                             each.key, each.before, each.now);
    }
    if (each.changes == Changes::kFiles) continue;
    changed += fmt::format("{}{} was {}, is {}", changed.empty() ? "" : "; ", each.key, each.before,
                           each.now);
  }
  if (!changed.empty()) Log(log, "resume: {}\n", changed);
  return {};
}

// Returns the metrics of the run whose folder contains the checkpoint.
std::string MetricsBeside(const std::string& checkpoint) {
  return (fs::absolute(checkpoint).parent_path().parent_path() / "metrics.jsonl").string();
}

// Returns the checkpoints that `config.resume` may mean, best first. Empty: the first step.
Result<std::vector<std::string>> FindCandidates(const TrainConfig& config, std::FILE* log) {
  const std::string own = CheckpointFolder(RunPath(config));
  if (!config.resume.empty() && config.resume != "auto") {
    PENSTOCK_TRY(std::vector<std::string> paths, Candidates(config.resume, log));
    if (paths.empty()) return NotFound("{} has no checkpoint to resume from", config.resume);
    return paths;
  }
  PENSTOCK_TRY(std::vector<std::string> paths, CheckpointsIn(own, log));
  if (config.resume == "auto") {
    if (paths.empty()) {
      Log(log, "resume: no checkpoint in {} yet, starting from the first step\n", own);
    }
    return paths;
  }
  if (!WritesCheckpoints(config) || paths.empty()) return std::vector<std::string>();
  return InvalidArgument(
      "{} has checkpoints of an earlier run: resume from them with resume=auto, choose another "
      "name, or remove them",
      own);
}

// Returns process 0's list on every process.
Result<std::vector<std::string>> FromLeader(Collectives& processes,
                                            const std::vector<std::string>& own) {
  ByteWriter writer;
  for (const std::string& each : own) writer.PutText(each);
  PENSTOCK_TRY(const std::string bytes, processes.FromLeader(writer.Take()));
  std::vector<std::string> list;
  for (ByteReader reader(bytes); !reader.at_end();) list.push_back(reader.GetText());
  return list;
}

// Notes that a checkpoint is damaged. Returns an error if no other one is left, or if the run was
// aborted.
Status SkipDamaged(const RunContext& run, RunStart& start, Error reason) {
  const ProcessGroup* const group = run.processes.group();
  if (group != nullptr && group->aborted()) return tl::unexpected(group->reason());
  start.damaged.push_back(reason.line());
  if (!start.others.empty()) {
    Log(run.log(), "resume: {}; trying the previous one, {}\n", reason.line(),
        start.others.front());
    return {};
  }
  if (start.damaged.size() == 1) return tl::unexpected(std::move(reason));
  return InvalidArgument("none of {} checkpoints is complete: {}", start.damaged.size(),
                         start.damaged.front());
}

// Opens the first of the other checkpoints that all processes can open. Does nothing if there are
// none.
Status OpenNext(const RunContext& run, const OpenedTokenizer* tokenizer, RunStart& start) {
  while (!start.others.empty()) {
    const std::string path = start.others.front();
    start.others.erase(start.others.begin());
    Result<Checkpoint> opened = OpenCheckpoint(path);
    const Status status = run.processes.All(opened ? Status() : tl::unexpected(opened.error()));
    if (!status) {
      PENSTOCK_TRY_STATUS(SkipDamaged(run, start, status.error()));
      continue;
    }
    start.checkpoint.emplace(*std::move(opened));
    PENSTOCK_TRY_STATUS(CheckFits(*start.checkpoint, run.config, run.log()));
    if (tokenizer != nullptr) PENSTOCK_TRY_STATUS(CheckTokenizer(*start.checkpoint, *tokenizer));
    start.metrics = ReadMetrics(MetricsBeside(path), start.step());
    start.held_out = ReadHeldOut(MetricsBeside(path), start.step());
    return {};
  }
  return {};
}

// Sets the parameters of a plane to the configured weights.
Status LoadWeights(const TrainConfig& config, const HuggingFaceWeights& weights,
                   const Pipeline& pipeline) {
  for (const auto& stage : pipeline.stages) {
    if (stage == nullptr) continue;
    for (const NamedParameter& each : stage->Restored()) {
      PENSTOCK_TRY_STATUS(weights.Read(config.model, each.name, each.layout, each.value));
      if (at::isfinite(each.value).all().item<bool>()) continue;
      return InvalidParameter("weights",
                              ": {}: {} is not finite (NaN or Inf): its training diverged, or the "
                              "file is damaged; give other weights",
                              config.weights, each.name);
    }
    stage->ReadWeights();
  }
  return {};
}

// Sets the parameters to the configured weights.
Status LoadWeights(const TrainConfig& config, const Pipeline& pipeline) {
  PENSTOCK_TRY(const HuggingFaceWeights weights, HuggingFaceWeights::Open(config.weights));
  PENSTOCK_TRY_STATUS(LoadWeights(config, weights, pipeline));
  for (const Pipeline& plane : pipeline.planes) {
    PENSTOCK_TRY_STATUS(LoadWeights(config, weights, plane));
  }
  return {};
}

bool ReadsOtherSamples(const TrainConfig& before, const TrainConfig& now) {
  return std::ranges::any_of(DifferentKeys(before, now), [](const KeyDifference& each) {
    return each.key == "batch" || each.key == "pipeline.microbatches" || each.key == "seed" ||
           each.key.starts_with("data.");
  });
}

// Checkpoints of earlier versions do not say what they have consumed, but their configuration
// determines it, if its data still exists.
std::vector<ConsumedData> ConsumedByEarlierVersion(const RunContext& run,
                                                   const CheckpointInfo& info,
                                                   const TrainingData& data) {
  if (!ReadsOtherSamples(info.config, run.config)) return data.samples->ConsumedAfter(info.step);
  const auto before = LoadTrainingData(info.config);
  if (before) return before->samples->ConsumedAfter(info.step);
  Log(run.log(),
      "resume: the data of the checkpoint cannot be read ({}): some samples may be trained on "
      "twice or skipped\n",
      before.error().line());
  return data.samples->ConsumedAfter(info.step);
}

}  // namespace

void ContinueData(const RunContext& run, const RunStart& start, const TrainingData& data) {
  const std::vector<ConsumedData> otherwise = data.samples->ConsumedAfter(start.step());
  if (!start.checkpoint || otherwise.empty()) return;
  const CheckpointInfo& info = start.checkpoint->info;
  const std::vector<ConsumedData> consumed =
      info.data.empty() ? ConsumedByEarlierVersion(run, info, data) : info.data;
  data.samples->ContinueAfter(info.step, consumed);
  if (consumed == otherwise) return;
  std::uint64_t samples = 0;
  for (const ConsumedData& each : consumed) samples += each.samples;
  Log(run.log(), "resume: the data continues after {} samples\n", samples);
}

Result<RunStart> FindStart(const RunContext& run, const OpenedTokenizer& tokenizer) {
  std::vector<std::string> found;
  if (run.processes.leads()) {
    PENSTOCK_TRY(found, FindCandidates(run.config, run.log()));
  }
  RunStart start;
  PENSTOCK_TRY(start.others, FromLeader(run.processes, found));
  PENSTOCK_TRY_STATUS(OpenNext(run, &tokenizer, start));
  return start;
}

Status RestoreStart(const RunContext& run, Pipeline& pipeline, RunStart& start) {
  while (start.checkpoint) {
    const Result<int> fresh = RestorePipeline(*start.checkpoint, pipeline);
    const Status status = run.processes.All(fresh ? Status() : tl::unexpected(fresh.error()));
    if (status) {
      if (*fresh > 0) {
        Log(run.log(),
            "resume: {} tensors of the optimizer's state are not in the checkpoint and start "
            "anew\n",
            *fresh);
      }
      Log(run.log(), "resume: {}, after step {}\n", start.checkpoint->path(), start.step());
      return {};
    }
    PENSTOCK_TRY_STATUS(SkipDamaged(run, start, status.error()));
    // An earlier checkpoint of the same folder, of the same run.
    PENSTOCK_TRY_STATUS(OpenNext(run, nullptr, start));
  }
  if (run.config.weights.empty()) return {};
  PENSTOCK_TRY_STATUS(run.processes.All(LoadWeights(run.config, pipeline)));
  Log(run.log(), "weights: {}\n", run.config.weights);
  return {};
}

}  // namespace penstock
