#include "train/checkpoint_folder.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>
#include <string_view>

namespace penstock {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kBefore = "step-";
constexpr std::string_view kBehind = ".safetensors";
constexpr std::string_view kUnfinished = ".tmp";  // of WriteFileDurably

std::optional<std::int64_t> StepOf(std::string_view name) {
  if (!name.starts_with(kBefore) || !name.ends_with(kBehind)) return std::nullopt;
  if (name.size() < kBefore.size() + kBehind.size()) return std::nullopt;
  const char* const begin = name.data() + kBefore.size();
  const char* const end = name.data() + name.size() - kBehind.size();
  std::int64_t step = 0;
  const auto [stop, error] = std::from_chars(begin, end, step);
  if (error != std::errc() || stop != end || step < 0) return std::nullopt;
  return step;
}

std::vector<std::string> NamesIn(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    names.push_back(entry->path().filename().string());
  }
  return names;
}

void Remove(const std::string& path) {
  std::error_code error;  // a file that stays does no harm
  fs::remove(path, error);
}

}  // namespace

std::string CheckpointFolder(const std::string& run) { return run + "/checkpoints"; }

std::string CheckpointPath(const std::string& folder, std::int64_t step) {
  return fmt::format("{}/{}{}{}", folder, kBefore, step, kBehind);
}

std::vector<StoredCheckpoint> ListCheckpoints(const std::string& folder) {
  std::vector<StoredCheckpoint> found;
  for (const std::string& name : NamesIn(folder)) {
    if (const auto step = StepOf(name))
      found.push_back({*step, fmt::format("{}/{}", folder, name)});
  }
  std::sort(found.begin(), found.end(),
            [](const StoredCheckpoint& a, const StoredCheckpoint& b) { return a.step > b.step; });
  return found;
}

void RemoveOldCheckpoints(const std::string& folder, std::int64_t newest, int keep) {
  int kept = 0;
  for (const StoredCheckpoint& stored : ListCheckpoints(folder)) {
    const bool stays = stored.step <= newest && (keep == 0 || kept < keep);
    if (stays) {
      ++kept;
    } else {
      Remove(stored.path);
    }
  }
  for (const std::string& name : NamesIn(folder)) {
    if (name.starts_with(kBefore) && name.ends_with(kUnfinished)) {
      Remove(fmt::format("{}/{}", folder, name));
    }
  }
}

Result<std::string> CheckpointFileOf(const std::string& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return path;
  std::vector<std::string> files = {path + "/model.safetensors"};
  for (const std::string& folder : {CheckpointFolder(path), path}) {
    const std::vector<StoredCheckpoint> stored = ListCheckpoints(folder);
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
    return NotFound("{} holds neither model.safetensors nor a checkpoint", path);
  }
  return best;
}

}  // namespace penstock
