#include "train/checkpoint/checkpoint_folder.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>
#include <string_view>

namespace penstock {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "step-";
constexpr std::string_view kSuffix = ".safetensors";
constexpr std::string_view kUnfinished = ".tmp";  // of WriteFileDurably

std::optional<std::int64_t> StepOf(std::string_view name) {
  if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix)) return std::nullopt;
  if (name.size() < kPrefix.size() + kSuffix.size()) return std::nullopt;
  const char* const begin = name.data() + kPrefix.size();
  const char* const end = name.data() + name.size() - kSuffix.size();
  std::int64_t step = 0;
  const auto [stop, error] = std::from_chars(begin, end, step);
  if (error != std::errc() || stop != end || step < 0) return std::nullopt;
  return step;
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

}  // namespace

std::string CheckpointFolder(const std::string& run) { return run + "/checkpoints"; }

std::string CheckpointPath(const std::string& folder, std::int64_t step) {
  return fmt::format("{}/{}{}{}", folder, kPrefix, step, kSuffix);
}

Result<std::vector<StoredCheckpoint>> ListCheckpoints(const std::string& folder) {
  std::vector<StoredCheckpoint> found;
  PENSTOCK_TRY(const std::vector<std::string> names, NamesIn(folder));
  for (const std::string& name : names) {
    if (const auto step = StepOf(name))
      found.push_back({*step, fmt::format("{}/{}", folder, name)});
  }
  std::sort(found.begin(), found.end(),
            [](const StoredCheckpoint& a, const StoredCheckpoint& b) { return a.step > b.step; });
  return found;
}

void RemoveOldCheckpoints(const std::string& folder, std::int64_t newest, int keep) {
  int kept = 0;
  const std::vector<std::string> names = NamesIn(folder).value_or(std::vector<std::string>());
  const auto all = ListCheckpoints(folder).value_or(std::vector<StoredCheckpoint>());
  for (const StoredCheckpoint& stored : all) {
    if (stored.step > newest || keep == 0 || kept++ < keep) continue;
    Remove(stored.path);
  }
  for (const std::string& name : names) {
    if (name.starts_with(kPrefix) && name.ends_with(kUnfinished)) {
      Remove(fmt::format("{}/{}", folder, name));
    }
  }
}

Result<std::string> SetAsideCheckpoints(const std::string& run, std::int64_t step) {
  PENSTOCK_TRY(std::vector<StoredCheckpoint> stored, ListCheckpoints(CheckpointFolder(run)));
  std::erase_if(stored, [&](const StoredCheckpoint& one) { return one.step <= step; });
  if (stored.empty()) return std::string();
  std::error_code error;
  std::string aside;
  for (int k = 1; aside.empty() && !error; ++k) {
    const std::string next = fmt::format("{}/superseded-{}", run, k);
    if (fs::create_directory(next, error)) aside = next;
  }
  const std::string to = CheckpointFolder(aside);
  if (!error) fs::create_directory(to, error);
  const std::string metrics = run + "/metrics.jsonl";
  if (!error && fs::exists(metrics)) fs::copy_file(metrics, aside + "/metrics.jsonl", error);
  for (const StoredCheckpoint& one : stored) {
    if (!error) fs::rename(one.path, CheckpointPath(to, one.step), error);
  }
  if (!error) return aside;
  return MakeError(ErrorCode::kUnavailable, "cannot move {} checkpoints of later steps to {}: {}",
                   stored.size(), to, error.message());
}

Result<std::string> CheckpointFileOf(const std::string& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return path;
  std::vector<std::string> files = {path + "/model.safetensors"};
  for (const std::string& folder : {CheckpointFolder(path), path}) {
    PENSTOCK_TRY(const std::vector<StoredCheckpoint> stored, ListCheckpoints(folder));
    if (!stored.empty()) files.push_back(stored.front().path);
  }
  std::string best;
  fs::file_time_type best_time;
  for (const std::string& file : files) {
    const fs::file_time_type time = fs::last_write_time(file, error);
    if (error || (!best.empty() && time <= best_time)) continue;
    best = file;
    best_time = time;
  }
  if (best.empty()) {
    return NotFound("{} contains neither model.safetensors nor a checkpoint", path);
  }
  return best;
}

}  // namespace penstock
