// Schedules in files: FILE.csv with FILE.yaml beside it where the cells cannot say everything.
#include <yaml-cpp/yaml.h>

#include <filesystem>

#include "base/files.h"
#include "schedule/text.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSidecarKeys = "microbatches, replicas, cuts, steps, weights";

std::string SidecarPath(const std::string& path) {
  return fs::path(path).replace_extension(".yaml").string();
}

const char* WeightsText(WeightPolicy weights) {
  switch (weights) {
    case WeightPolicy::kFlush:
      return "flush";
    case WeightPolicy::kStashed:
      return "stashed";
    case WeightPolicy::kDoubleBuffered:
      return "double-buffered";
  }
  return "flush";
}

Result<int> ReadCount(const YAML::Node& node, const std::string& key) {
  int value = 0;
  if (!node.IsScalar() || !YAML::convert<int>::decode(node, value) || value < 1) {
    return InvalidArgument("{} is not a number of at least 1", key);
  }
  return value;
}

Status ReadEntry(const std::string& key, const YAML::Node& node, CsvOptions& options) {
  if (key == "weights") {
    const std::string name = node.IsScalar() ? node.Scalar() : "";
    for (const WeightPolicy weights :
         {WeightPolicy::kFlush, WeightPolicy::kStashed, WeightPolicy::kDoubleBuffered}) {
      if (name != WeightsText(weights)) continue;
      options.weights = weights;
      return {};
    }
    return InvalidArgument("weights is not one of flush, stashed, double-buffered");
  }
  std::optional<int>* field = key == "microbatches" ? &options.microbatches
                              : key == "replicas"   ? &options.replicas
                              : key == "cuts"       ? &options.cuts
                              : key == "steps"      ? &options.steps
                                                    : nullptr;
  if (field == nullptr) return InvalidArgument("unknown key '{}'; there are {}", key, kSidecarKeys);
  PENSTOCK_TRY(*field, ReadCount(node, key));
  return {};
}

Result<CsvOptions> ParseSidecar(const std::string& text) {
  CsvOptions options;
  try {
    const YAML::Node root = YAML::Load(text);
    if (root.IsNull()) return options;
    if (!root.IsMap()) return InvalidArgument("it is not a map of {}", kSidecarKeys);
    for (const auto& entry : root) {
      if (!entry.first.IsScalar()) return InvalidArgument("a key is not a word");
      PENSTOCK_TRY_STATUS(ReadEntry(entry.first.Scalar(), entry.second, options));
    }
  } catch (const YAML::Exception& error) {
    return InvalidArgument("line {}: {}", error.mark.line + 1, error.msg);
  }
  return options;
}

// What FILE.yaml says; nothing where it is not there.
Result<CsvOptions> LoadSidecar(const std::string& path) {
  const std::string sidecar = SidecarPath(path);
  std::error_code error;
  if (sidecar == path || !fs::exists(sidecar, error)) return CsvOptions{};
  PENSTOCK_TRY(const std::string text, ReadFile(sidecar));
  auto options = ParseSidecar(text);
  if (!options) {
    return InvalidArgument("{} (read beside {}): {}", sidecar, path, options.error().message);
  }
  return options;
}

std::string SidecarText(const Schedule& schedule) {
  std::string text;
  if (schedule.placement.replicas() != 1) {
    text += fmt::format("replicas: {}\n", schedule.placement.replicas());
  }
  if (schedule.cuts != 1) text += fmt::format("cuts: {}\n", schedule.cuts);
  if (schedule.steps != 1) text += fmt::format("steps: {}\n", schedule.steps);
  if (schedule.weights != WeightPolicy::kFlush) {
    text += fmt::format("weights: {}\n", WeightsText(schedule.weights));
  }
  return text;
}

template <class T>
std::optional<T> FirstSet(const std::optional<T>& first, const std::optional<T>& second) {
  return first ? first : second;
}

}  // namespace

Result<Schedule> LoadSchedule(const std::string& path, const CsvOptions& options) {
  PENSTOCK_TRY(const CsvOptions sidecar, LoadSidecar(path));
  CsvOptions merged;
  merged.microbatches = FirstSet(options.microbatches, sidecar.microbatches);
  merged.replicas = FirstSet(options.replicas, sidecar.replicas);
  merged.cuts = FirstSet(options.cuts, sidecar.cuts);
  merged.steps = FirstSet(options.steps, sidecar.steps);
  merged.weights = FirstSet(options.weights, sidecar.weights);

  PENSTOCK_TRY(const std::string text, ReadFile(path));
  auto schedule = ParseCsv(text, merged);
  if (!schedule) return InvalidArgument("{}: {}", path, schedule.error().message);
  schedule->algorithm = fs::path(path).filename().string();
  return schedule;
}

Status SaveSchedule(const Schedule& schedule, const std::string& path) {
  const std::string sidecar = SidecarPath(path);
  const std::string extra = SidecarText(schedule);
  if (sidecar == path && !extra.empty()) {
    return InvalidArgument("{}: its companion file would have the same name; use .csv", path);
  }
  std::error_code error;
  const bool stale = sidecar != path && fs::exists(sidecar, error);
  if (stale) {
    // Never replace a file that is not a schedule's companion.
    PENSTOCK_TRY(const std::string text, ReadFile(sidecar));
    if (!ParseSidecar(text)) {
      return InvalidArgument("{} is there and does not describe a schedule: choose another name",
                             sidecar);
    }
  }
  if (!extra.empty()) {
    PENSTOCK_TRY_STATUS(WriteFileAtomically(sidecar, extra));
  } else if (stale && !fs::remove(sidecar, error) && error) {
    return MakeError(ErrorCode::kUnavailable, "cannot remove {}: {}", sidecar, error.message());
  }
  return WriteFileAtomically(path, WriteCsv(schedule));
}

}  // namespace penstock
