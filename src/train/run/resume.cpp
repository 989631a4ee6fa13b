#include "train/run/resume.h"

#include <algorithm>
#include <filesystem>

#include "base/log.h"
#include "train/checkpoint/checkpoint_folder.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

// Returns the checkpoints of a folder, in descending order of steps.
Result<std::vector<std::string>> FilesOf(const std::string& folder) {
  PENSTOCK_TRY(const std::vector<StoredCheckpoint> stored, ListCheckpoints(folder));
  std::vector<std::string> files;
  for (const StoredCheckpoint& one : stored) files.push_back(one.path);
  return files;
}

// Returns the files to try, best first; only `path` if it is not a folder.
Result<std::vector<std::string>> Candidates(const std::string& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return std::vector<std::string>{path};
  PENSTOCK_TRY(std::vector<std::string> files, FilesOf(CheckpointFolder(path)));
  if (files.empty()) return FilesOf(path);
  return files;
}

Result<Checkpoint> ReadNewestComplete(const std::vector<std::string>& files, std::FILE* log) {
  Result<Checkpoint> first = ReadCheckpoint(files.front());
  if (first || files.size() == 1) return first;
  std::string reason = first.error().message;
  for (auto file = files.begin() + 1; file != files.end(); ++file) {
    Log(log, "resume: {}; trying the previous one, {}\n", reason, *file);
    Result<Checkpoint> next = ReadCheckpoint(*file);
    if (next) return next;
    reason = next.error().message;
  }
  return InvalidArgument("none of {} checkpoints is complete: {}", files.size(),
                         first.error().message);
}

Status CheckFits(const Checkpoint& from, const TrainConfig& config, std::FILE* log) {
  if (from.optimizer.empty()) {
    return InvalidArgument("{} has no optimizer state: resume from one of a run's checkpoints",
                           from.path);
  }
  if (from.info.step > config.steps) {
    return InvalidArgument("{} is after step {}, but 'steps' is only {}: set a larger 'steps'",
                           from.path, from.info.step, config.steps);
  }
  std::string changed;
  for (const KeyDifference& each : DifferentKeys(from.info.config, config)) {
    if (each.changes == Changes::kModel) {
      return InvalidArgument("{} is of another model: {} is {} there, {} here", from.path, each.key,
                             each.before, each.now);
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

}  // namespace

std::string RunPath(const TrainConfig& config) {
  return fmt::format("{}/{}", config.folder, config.name);
}

Result<RunStart> FindStart(const TrainConfig& config, std::FILE* log) {
  RunStart start;
  const std::string own = CheckpointFolder(RunPath(config));
  PENSTOCK_TRY(std::vector<std::string> files, FilesOf(own));
  if (config.resume.empty()) {
    if (config.checkpoint.every == 0 || files.empty()) return start;
    return InvalidArgument(
        "{} has checkpoints of an earlier run: resume from them with resume=auto, choose another "
        "name, or remove them",
        own);
  }
  if (config.resume == "auto") {
    if (files.empty()) {
      Log(log, "resume: no checkpoint in {} yet, starting from the first step\n", own);
      return start;
    }
  } else {
    PENSTOCK_TRY(files, Candidates(config.resume));
    if (files.empty()) return NotFound("{} has no checkpoint to resume from", config.resume);
  }
  PENSTOCK_TRY(start.checkpoint, ReadNewestComplete(files, log));
  PENSTOCK_TRY_STATUS(CheckFits(*start.checkpoint, config, log));
  start.metrics = ReadMetrics(MetricsBeside(start.checkpoint->path), start.step());
  Log(log, "resume: {}, after step {}\n", start.checkpoint->path, start.step());
  return start;
}

Result<RunStart> FindStart(Collectives& hosts, const TrainConfig& config, std::FILE* log) {
  RunStart start;
  if (hosts.leads()) {
    PENSTOCK_TRY(start, FindStart(config, log));
  }
  PENSTOCK_TRY(const std::string path,
               hosts.FromLeader(start.checkpoint ? start.checkpoint->path : std::string()));
  if (hosts.leads() || path.empty()) return start;
  PENSTOCK_TRY(start.checkpoint, ReadCheckpoint(path));
  return start;
}

Status SetAsideSuperseded(const TrainConfig& config, const RunStart& start, std::FILE* log) {
  const std::string run = RunPath(config);
  std::error_code error;
  const bool continues =
      start.checkpoint && fs::equivalent(fs::absolute(start.checkpoint->path).parent_path(),
                                         CheckpointFolder(run), error);
  PENSTOCK_TRY(const std::string aside, SetAsideCheckpoints(run, continues ? start.step() : -1));
  if (aside.empty()) return {};
  Log(log, "the checkpoints {} are kept in {}: resume={} continues from them\n",
      continues ? fmt::format("after step {}", start.step()) : "of an earlier run", aside, aside);
  return {};
}

}  // namespace penstock
