#include "train/run/superseded.h"

#include <algorithm>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "base/log.h"
#include "checkpoint/checkpoint_folder.h"
#include "schedule/text/text.h"
#include "train/checkpoint/checkpoint.h"
#include "train/data/run_tokenizer.h"
#include "train/evaluation/best_loss.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

constexpr const char* kWeights = "model.safetensors";
constexpr const char* kMetrics = "metrics.jsonl";
constexpr const char* kSchedule = "schedule.csv";
constexpr const char* kConfig = "config.yaml";

bool IsResult(std::string_view name) {
  constexpr std::string_view kNames[] = {kWeights, "report.html", "trace.json", "loss.svg",
                                         "timeline.svg"};
  return std::ranges::find(kNames, name) != std::end(kNames);
}

bool IsStepTrace(std::string_view name) { return name.starts_with("trace-step-"); }

bool IsHistory(std::string_view name) {
  return name == kMetrics || name.starts_with("events.out.tfevents.");
}

// The names of the files in a run's folder, by kind. Penstock writes no others.
struct RunFiles {
  std::vector<std::string> results, traces, history, tokenizer;
};

RunFiles FilesOf(const std::string& run) {
  RunFiles files;
  std::error_code error;
  for (fs::directory_iterator at(run, error), end; !error && at != end; at.increment(error)) {
    std::string name = at->path().filename().string();
    if (IsResult(name)) {
      files.results.push_back(std::move(name));
    } else if (IsStepTrace(name)) {
      files.traces.push_back(std::move(name));
    } else if (IsHistory(name)) {
      files.history.push_back(std::move(name));
    } else if (IsTokenizerFile(name)) {
      files.tokenizer.push_back(std::move(name));
    }
  }
  return files;
}

void Append(const std::vector<std::string>& from, std::vector<std::string>& to) {
  to.insert(to.end(), from.begin(), from.end());
}

// Whether the configuration and the schedule in the run's folder compute the same as `run`.
bool HasSameConfig(const RunContext& run) {
  const auto csv = ReadFile(fmt::format("{}/{}", run.path(), kSchedule));
  if (!csv) return false;
  const auto schedule = ParseCsv(*csv);  // earlier versions wrote other text
  const auto config = LoadTrainConfig(fmt::format("{}/{}", run.path(), kConfig));
  if (!schedule || !config || WriteCsv(*schedule) != WriteCsv(run.schedule)) return false;
  return std::ranges::all_of(DifferentKeys(*config, run.config), [](const KeyDifference& each) {
    return each.changes == Changes::kFiles;
  });
}

bool HasMetrics(const std::string& run) {
  std::error_code error;
  const auto size = fs::file_size(fmt::format("{}/{}", run, kMetrics), error);
  return !error && size > 0;
}

// The files that a run from elsewhere replaces. The configuration, by which the next start knows an
// earlier run, is moved last, so that a kill leaves nothing unnoticed. The run may read the
// tokenizer, so it stays.
Result<SupersededFiles> FilesOfEarlierRun(const RunContext& run) {
  const RunFiles files = FilesOf(run.path());
  PENSTOCK_TRY(const auto checkpoints, ListCheckpoints(CheckpointFolder(run.path())));
  const bool has_results = !checkpoints.empty() || !files.results.empty();
  if (!has_results && (!HasMetrics(run.path()) || HasSameConfig(run))) return SupersededFiles();
  SupersededFiles superseded{files.results, files.tokenizer};
  Append(files.traces, superseded.moved);
  Append(files.history, superseded.moved);
  Append({"schedule.yaml", kSchedule, kConfig}, superseded.moved);
  return superseded;
}

// The results of more steps than the start's. Nobody knows the steps of damaged weights.
SupersededFiles LaterResults(const std::string& run, std::int64_t step) {
  const RunFiles files = FilesOf(run);
  SupersededFiles superseded{{}, files.tokenizer};
  Append({kMetrics, "schedule.yaml", kSchedule, kConfig}, superseded.copied);
  const std::string weights = fmt::format("{}/{}", run, kWeights);
  const auto opened = OpenCheckpoint(weights);
  std::error_code error;
  const bool is_later = opened ? opened->info.step > step : fs::exists(weights, error);
  if (!is_later) return superseded;
  superseded.moved = files.results;
  Append(files.traces, superseded.moved);
  return superseded;
}

}  // namespace

namespace {

// Links to the best checkpoint before the start again, if a later one was better and was set aside.
Status RestoreBest(const RunContext& run, const RunStart& start) {
  const std::string folder = CheckpointFolder(run.path());
  const std::int64_t best = BestLoss(start.held_out).best().step + 1;
  const bool exists = best > 0 && IsCheckpointFolder(CheckpointPath(folder, best));
  if (!run.config.checkpoint.best || !exists || BestStep(folder) >= 0) return {};
  return LinkBest(folder, best);
}

}  // namespace

Status SetAsideSuperseded(const RunContext& run, const RunStart& start) {
  const std::string path = run.path();
  std::error_code error;
  const bool continues =
      start.checkpoint && fs::equivalent(fs::absolute(start.checkpoint->path()).parent_path(),
                                         CheckpointFolder(path), error);
  SupersededFiles files;
  if (continues) {
    files = LaterResults(path, start.step());
  } else {
    PENSTOCK_TRY(files, FilesOfEarlierRun(run));
  }
  PENSTOCK_TRY(const std::string aside, SetAside(path, continues ? start.step() : -1, files));
  if (aside.empty()) return {};
  if (continues) PENSTOCK_TRY_STATUS(RestoreBest(run, start));
  PENSTOCK_TRY(const auto moved, ListCheckpoints(CheckpointFolder(aside)));
  Log(run.log(), "the files {} are kept in {}{}\n",
      continues ? fmt::format("after step {}", start.step()) : "of an earlier run", aside,
      moved.empty() ? "" : fmt::format(": resume={} continues from its checkpoints", aside));
  return {};
}

}  // namespace penstock
