// penstock checkpoint: lists the checkpoints of a run, verifies them, and merges one into a file.
#include <sys/stat.h>

#include <ctime>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/units.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/checkpoint_reader.h"
#include "checkpoint/merge.h"
#include "cli/command/command.h"
#include "cli/help/offered_values.h"
#include "cli/output/print_json.h"
#include "cli/output/terminal.h"
#include "monitor/run_names.h"
#include "report/table.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

enum class CheckpointState { kComplete, kUnfinished, kDamaged };

const char* NameOf(CheckpointState state) {
  switch (state) {
    case CheckpointState::kComplete:
      return "complete";
    case CheckpointState::kUnfinished:
      return "unfinished";
    case CheckpointState::kDamaged:
      return "damaged";
  }
  return "";
}

struct ListedCheckpoint {
  std::string path;
  CheckpointState state = CheckpointState::kComplete;
  std::string reason;  // if it is not complete
  std::optional<std::int64_t> step;
  std::size_t files = 0;
  std::uint64_t bytes = 0;
  std::int64_t written = 0;  // Unix time in seconds
};

std::string AgeText(std::int64_t seconds) {
  constexpr std::int64_t kDay = 24 * 3600;
  if (seconds >= 2 * kDay) return fmt::format("{} days", seconds / kDay);
  return seconds < 60 ? fmt::format("{} s", std::max<std::int64_t>(seconds, 0))
                      : FormatSeconds(static_cast<double>(seconds));
}

// Counts the files of a checkpoint on the disk, and finds when the last one was written.
void Measure(ListedCheckpoint& listed) {
  const auto add = [&](const std::string& file) {
    struct stat status = {};
    if (stat(file.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return;
    ++listed.files;
    listed.bytes += static_cast<std::uint64_t>(status.st_size);
    listed.written = std::max<std::int64_t>(listed.written, status.st_mtime);
  };
  std::error_code error;
  if (!fs::is_directory(listed.path, error)) return add(listed.path);
  for (fs::directory_iterator entry(listed.path, error), end; !error && entry != end;
       entry.increment(error)) {
    add(entry->path().string());
  }
}

ListedCheckpoint Inspect(const StoredCheckpoint& stored, bool verify) {
  ListedCheckpoint listed;
  listed.path = stored.path;
  if (stored.step >= 0) listed.step = stored.step;
  Measure(listed);
  if (!stored.complete) {
    listed.state = CheckpointState::kUnfinished;
    listed.reason =
        fmt::format("{} has no manifest.json: its run was killed or still writes it", stored.path);
    return listed;
  }
  auto reader = CheckpointReader::Open(stored.path);
  Status status = reader ? Status() : tl::unexpected(reader.error());
  if (status) listed.step = reader->manifest().step;
  if (status && verify) status = reader->Verify();
  if (status) return listed;
  listed.state = CheckpointState::kDamaged;
  listed.reason = status.error().line();
  return listed;
}

// Returns the checkpoints that DIR refers to, newest first. Errors: kNotFound if there are none.
Result<std::vector<StoredCheckpoint>> Find(const std::string& path) {
  constexpr std::int64_t kUnknownStep = -1;
  std::error_code error;
  if (!fs::exists(path, error)) return NotFound("there is no file or folder {}", path);
  if (!fs::is_directory(path, error) || IsCheckpointFolder(path)) {
    return std::vector<StoredCheckpoint>{{kUnknownStep, path, true}};
  }
  for (const std::string& folder : {CheckpointFolder(path), path}) {
    PENSTOCK_TRY(std::vector<StoredCheckpoint> stored, ListAllCheckpoints(folder));
    if (!stored.empty()) return stored;
  }
  if (IsCheckpointName(fs::path(path).filename().string())) {
    return std::vector<StoredCheckpoint>{{kUnknownStep, path, false}};
  }
  return NotFound("{} has no checkpoint", path);
}

class CheckpointCommand final : public Command {
 public:
  std::string Name() const override { return "checkpoint"; }
  std::string Summary() const override {
    return "List and verify the checkpoints of a run, or merge one into a file";
  }

  void Define(CLI::App& app) override {
    Offer(app.add_option("DIR", path_,
                         "A run's name or folder, its folder of checkpoints, or one checkpoint (a "
                         "folder step-N or a safetensors file)"),
          [] { return OfferedRuns(OfferedPaths::kFiles); })
        ->required();
    app.add_flag("--verify", verify_,
                 "Read all files and verify their checksums; otherwise only the manifests and the "
                 "sizes of the files");
    app.add_option("--merge", merge_,
                   "Write the weights of the checkpoint to this file, as model.safetensors at the "
                   "end of a run; of several checkpoints, the newest complete one")
        ->type_name("FILE");
    app.add_flag("--json", json_, "Print one JSON object");
  }

  std::string ExitCodes() const override {
    return "0 all complete checkpoints are valid; 1 one is damaged, or none is complete; 2 bad "
           "usage or a path that cannot be read";
  }

  Result<int> Run() override {
    PENSTOCK_TRY(path_, PathOrRun(path_));
    PENSTOCK_TRY(const std::vector<StoredCheckpoint> found, Find(path_));
    for (const StoredCheckpoint& stored : found) listed_.push_back(Inspect(stored, verify_));
    if (!merge_.empty()) PENSTOCK_TRY_STATUS(Merge());
    if (json_) {
      PrintJson();
    } else {
      PrintText();
    }
    const auto any = [&](CheckpointState state) {
      return std::ranges::find(listed_, state, &ListedCheckpoint::state) != listed_.end();
    };
    const bool valid = any(CheckpointState::kComplete) && !any(CheckpointState::kDamaged);
    return valid ? kExitOk : kExitFailed;
  }

 private:
  struct Merged {
    std::string from;
    MergedWeights weights;
  };

  Status Merge() {
    const auto newest =
        std::ranges::find(listed_, CheckpointState::kComplete, &ListedCheckpoint::state);
    if (newest == listed_.end()) {
      return MakeError(ErrorCode::kUnavailable, "no checkpoint to merge: {}",
                       listed_.front().reason);
    }
    PENSTOCK_TRY(CheckpointReader reader, CheckpointReader::Open(newest->path));
    PENSTOCK_TRY(const MergedWeights weights, MergeWeights(reader, merge_));
    merged_ = {newest->path, weights};
    return {};
  }

  void PrintText() const {
    const std::int64_t now = std::time(nullptr);
    Table table{"", {"step", "state", "size", "files", "age", "path"}, {}};
    for (const ListedCheckpoint& each : listed_) {
      table.rows.push_back({each.step ? std::to_string(*each.step) : "", StateText(each),
                            FormatBytes(static_cast<std::int64_t>(each.bytes)),
                            std::to_string(each.files), AgeText(now - each.written), each.path});
    }
    fmt::print("{}", TableText(table));
    for (const ListedCheckpoint& each : listed_) {
      if (!each.reason.empty()) fmt::print("{}: {}\n", NameOf(each.state), each.reason);
    }
    if (!merged_) return;
    fmt::print("wrote {}: {} tensors of {}, {}\n", merge_, merged_->weights.tensors, merged_->from,
               FormatBytes(static_cast<std::int64_t>(merged_->weights.bytes)));
  }

  std::string StateText(const ListedCheckpoint& each) const {
    const bool verified = verify_ && each.state == CheckpointState::kComplete;
    return verified ? "complete, verified" : NameOf(each.state);
  }

  void PrintJson() const {
    Json object = {{"checkpoints", Json::array()}};
    for (const ListedCheckpoint& each : listed_) {
      Json entry = {{"step", each.step ? Json(*each.step) : Json()},
                    {"state", NameOf(each.state)},
                    {"verified", verify_ && each.state == CheckpointState::kComplete},
                    {"bytes", each.bytes},
                    {"files", each.files},
                    {"written", each.written},
                    {"path", each.path}};
      if (!each.reason.empty()) entry["reason"] = each.reason;
      object["checkpoints"].push_back(std::move(entry));
    }
    if (merged_) {
      object["merged"] = {{"path", merge_},
                          {"from", merged_->from},
                          {"tensors", merged_->weights.tensors},
                          {"bytes", merged_->weights.bytes}};
    }
    object["units"] = {{"bytes", "B"}, {"written", "s since 1970-01-01 UTC"}};
    PrintObject(object);
  }

  std::string path_;
  bool verify_ = false;
  std::string merge_;
  bool json_ = false;
  std::vector<ListedCheckpoint> listed_;
  std::optional<Merged> merged_;
};

}  // namespace

std::unique_ptr<Command> MakeCheckpointCommand() { return std::make_unique<CheckpointCommand>(); }

}  // namespace penstock
