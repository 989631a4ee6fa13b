#include "checkpoint/checkpoint_folder.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>
#include <utility>

#include "checkpoint/manifest.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "step-";
constexpr std::string_view kFileSuffix = ".safetensors";  // of earlier versions of Penstock
constexpr std::string_view kUnfinished = ".tmp";          // of WriteFileDurably

std::optional<std::int64_t> StepOf(std::string_view name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  if (name.ends_with(kFileSuffix)) name.remove_suffix(kFileSuffix.size());
  std::int64_t step = 0;
  const auto [stop, error] = std::from_chars(name.data(), name.data() + name.size(), step);
  if (error != std::errc() || stop != name.data() + name.size() || step < 0) return std::nullopt;
  return step;
}

// Returns whether WriteShards or RemoveCheckpoint may have left this file in a checkpoint.
bool IsOwnName(std::string_view name) {
  return name.starts_with(kManifestName) ||
         (name.starts_with("shard-") &&
          (name.ends_with(kFileSuffix) || name.ends_with(kUnfinished)));
}

std::string ManifestOf(const std::string& checkpoint) {
  return fmt::format("{}/{}", checkpoint, kManifestName);
}

// Returns an empty list if there is no folder.
Result<std::vector<std::string>> NamesIn(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  const bool missing = fs::symlink_status(folder, error).type() == fs::file_type::not_found;
  if (missing) return names;
  error.clear();
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    names.push_back(entry->path().filename().string());
  }
  if (!error) return names;
  return InvalidArgument("cannot list the checkpoints in {}: {}", folder, error.message());
}

void Remove(const std::string& path) {
  std::error_code error;  // ignored: a file that remains does no harm
  fs::remove(path, error);
}

// Returns when the checkpoint was completed.
fs::file_time_type TimeOf(const std::string& path, std::error_code& error) {
  return fs::last_write_time(IsCheckpointFolder(path) ? ManifestOf(path) : path, error);
}

}  // namespace

std::string CheckpointFolder(const std::string& run) { return run + "/checkpoints"; }

std::string CheckpointPath(const std::string& folder, std::int64_t step) {
  return fmt::format("{}/{}{}", folder, kPrefix, step);
}

bool IsCheckpointName(std::string_view name) { return StepOf(name).has_value(); }

bool IsCheckpointFolder(const std::string& path) {
  std::error_code error;
  return fs::exists(ManifestOf(path), error);
}

Result<std::vector<StoredCheckpoint>> ListAllCheckpoints(const std::string& folder) {
  std::vector<StoredCheckpoint> found;
  PENSTOCK_TRY(const std::vector<std::string> names, NamesIn(folder));
  for (const std::string& name : names) {
    const auto step = StepOf(name);
    if (!step) continue;
    const std::string path = fmt::format("{}/{}", folder, name);
    std::error_code error;
    const bool is_file = name.ends_with(kFileSuffix);
    if (!is_file && !fs::is_directory(path, error)) continue;
    found.push_back({*step, path, is_file || IsCheckpointFolder(path)});
  }
  std::ranges::sort(found, {}, [](const StoredCheckpoint& stored) {
    return std::pair(-stored.step, stored.path);
  });
  return found;
}

Result<std::vector<StoredCheckpoint>> ListCheckpoints(const std::string& folder) {
  PENSTOCK_TRY(std::vector<StoredCheckpoint> all, ListAllCheckpoints(folder));
  std::erase_if(all, [](const StoredCheckpoint& stored) { return !stored.complete; });
  return all;
}

void RemoveCheckpoint(const std::string& path) {
  std::error_code error;
  if (fs::is_symlink(fs::symlink_status(path, error))) return;
  if (!fs::is_directory(path, error)) return Remove(path);
  Remove(ManifestOf(path));
  const std::vector<std::string> names = NamesIn(path).value_or(std::vector<std::string>());
  for (const std::string& name : names) {
    if (IsOwnName(name)) Remove(fmt::format("{}/{}", path, name));
  }
  Remove(path);
}

std::string BestPath(const std::string& folder) { return folder + "/best"; }

Status LinkBest(const std::string& folder, std::int64_t step) {
  const std::string link = BestPath(folder), next = link + std::string(kUnfinished);
  std::error_code error;
  fs::remove(next, error);
  fs::create_directory_symlink(fmt::format("{}{}", kPrefix, step), next, error);
  if (!error) fs::rename(next, link, error);
  if (!error) return {};
  return MakeError(ErrorCode::kUnavailable, "cannot write the link {}: {}", link, error.message());
}

std::int64_t BestStep(const std::string& folder) {
  std::error_code error;
  const fs::path target = fs::read_symlink(BestPath(folder), error);
  if (error || !IsCheckpointFolder(BestPath(folder))) return -1;
  return StepOf(target.filename().string()).value_or(-1);
}

void RemoveOldCheckpoints(const std::string& folder, std::int64_t newest, int keep) {
  int kept = 0;
  const std::int64_t best = BestStep(folder);
  const auto all = ListAllCheckpoints(folder).value_or(std::vector<StoredCheckpoint>());
  for (const StoredCheckpoint& stored : all) {
    const bool old = stored.complete && stored.step <= newest && keep > 0 && kept++ >= keep;
    if ((old && stored.step != best) || !stored.complete) RemoveCheckpoint(stored.path);
  }
  const std::vector<std::string> names = NamesIn(folder).value_or(std::vector<std::string>());
  for (const std::string& name : names) {
    if (name.starts_with(kPrefix) && name.ends_with(kUnfinished)) {
      Remove(fmt::format("{}/{}", folder, name));
    }
  }
}

namespace {

// Makes the first RUN/superseded-K whose name nothing has, not even a dangling link.
fs::path MakeSuperseded(const std::string& run, std::error_code& error) {
  for (int k = 1;; ++k) {
    fs::path next = fmt::format("{}/superseded-{}", run, k);
    std::error_code ignored;
    if (fs::exists(fs::symlink_status(next, ignored))) continue;
    if (fs::create_directory(next, error) || error) return next;
  }
}

// Moves the link to the best checkpoint next to that checkpoint, if it was moved to `aside`.
void MoveBestLink(const std::string& own, const std::string& aside) {
  std::error_code error;
  const fs::path target = fs::read_symlink(BestPath(own), error);
  if (error || IsCheckpointFolder(BestPath(own))) return;
  const auto step = StepOf(target.filename().string());
  fs::remove(BestPath(own), error);
  // A link that cannot be made is no reason to stop: the checkpoints are there.
  if (step && IsCheckpointFolder(CheckpointPath(aside, *step))) (void)LinkBest(aside, *step);
}

}  // namespace

Result<std::string> SetAside(const std::string& run, std::int64_t step,
                             const SupersededFiles& files) {
  PENSTOCK_TRY(std::vector<StoredCheckpoint> stored, ListCheckpoints(CheckpointFolder(run)));
  std::erase_if(stored, [&](const StoredCheckpoint& one) { return one.step <= step; });
  std::error_code error;
  std::error_code ignored;
  const auto exists = [&](const std::string& name) {
    return fs::exists(fs::path(run) / name, ignored);
  };
  if (stored.empty() && std::ranges::none_of(files.moved, exists)) return std::string();
  const std::string aside = MakeSuperseded(run, error).string();
  for (const std::string& name : files.copied) {
    if (!error && exists(name)) fs::copy_file(fs::path(run) / name, fs::path(aside) / name, error);
  }
  const fs::path to = CheckpointFolder(aside);
  if (!error && !stored.empty()) fs::create_directory(to, error);
  for (const StoredCheckpoint& one : stored) {
    if (!error) fs::rename(one.path, to / fs::path(one.path).filename(), error);
  }
  for (const std::string& name : files.moved) {
    if (!error && exists(name)) fs::rename(fs::path(run) / name, fs::path(aside) / name, error);
  }
  MoveBestLink(CheckpointFolder(run), to.string());
  if (!error) return aside;
  return MakeError(ErrorCode::kUnavailable, "cannot move the superseded files of {} to {}: {}", run,
                   aside, error.message());
}

Result<std::string> CheckpointAt(const std::string& path) {
  std::error_code error;
  if (!fs::is_directory(path, error) || IsCheckpointFolder(path)) return path;
  std::vector<std::string> candidates = {path + "/model.safetensors"};
  for (const std::string& folder : {CheckpointFolder(path), path}) {
    PENSTOCK_TRY(const std::vector<StoredCheckpoint> stored, ListCheckpoints(folder));
    if (!stored.empty()) candidates.push_back(stored.front().path);
  }
  std::string best;
  fs::file_time_type best_time;
  for (const std::string& candidate : candidates) {
    const fs::file_time_type time = TimeOf(candidate, error);
    if (error || (!best.empty() && time <= best_time)) continue;
    best = candidate;
    best_time = time;
  }
  if (best.empty()) {
    return NotFound("{} contains neither model.safetensors nor a complete checkpoint", path);
  }
  return best;
}

}  // namespace penstock
