// Schedules in files: FILE.csv, and the companion FILE.yaml of earlier versions.
#include <filesystem>

#include "base/files.h"
#include "base/notes.h"
#include "base/text/yaml_map.h"
#include "schedule/text/text.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

// The 50 million actions of the largest schedules take half a GiB, and two GiB with SEND and RECV.
constexpr FileLimit kCsvFile = {std::size_t{4} << 30, "schedule's CSV file"};

std::string SidecarPath(const std::string& path) {
  return fs::path(path).replace_extension(".yaml").string();
}

Result<std::optional<int>> ReadCount(const YamlMap& map, const char* key) {
  PENSTOCK_TRY(const std::optional<int> value, map.Int(key));
  if (value && *value < 1) return map.Refuse(key, "must be at least 1, not {}", *value);
  return value;
}

Result<std::optional<WeightPolicy>> ReadWeights(const YamlMap& map) {
  PENSTOCK_TRY(const std::optional<std::string> name, map.Text("weights"));
  if (!name) return std::optional<WeightPolicy>();
  const auto weights = ParseWeights(*name);
  if (!weights) return map.Refuse("weights", "{}", weights.error().line());
  return std::optional(*weights);
}

Result<CsvOptions> ReadSidecar(const YAML::Node& root) {
  CsvOptions options;
  if (root.IsNull()) return options;
  PENSTOCK_TRY(const YamlMap map, YamlMap::Of(root, "a CSV's companion"));
  PENSTOCK_TRY_STATUS(map.RequireKnown({"microbatches", "replicas", "slices", "steps", "weights"}));
  PENSTOCK_TRY(options.microbatches, ReadCount(map, "microbatches"));
  PENSTOCK_TRY(options.replicas, ReadCount(map, "replicas"));
  PENSTOCK_TRY(options.slices, ReadCount(map, "slices"));
  PENSTOCK_TRY(options.steps, ReadCount(map, "steps"));
  PENSTOCK_TRY(options.weights, ReadWeights(map));
  return options;
}

Result<CsvOptions> LoadSidecarFile(const std::string& sidecar) {
  PENSTOCK_TRY(const YAML::Node root, LoadYaml(sidecar));
  auto options = ReadSidecar(root);
  if (!options) return tl::unexpected(In(sidecar, options.error()));
  return options;
}

// Reads FILE.yaml; returns the defaults if it does not exist.
Result<CsvOptions> LoadSidecar(const std::string& path) {
  const std::string sidecar = SidecarPath(path);
  std::error_code error;
  if (sidecar == path || !fs::exists(sidecar, error)) return CsvOptions{};
  auto options = LoadSidecarFile(sidecar);
  if (!options) {
    options.error().message += fmt::format(" (the companion of {})", path);
  }
  return options;
}

}  // namespace

Result<Schedule> LoadSchedule(const std::string& path, const CsvOptions& options) {
  PENSTOCK_TRY(const std::string text, ReadTextFile(path, kCsvFile));
  CsvOptions companion;
  const HeaderForm header = FormOfHeader(text);
  if (header == HeaderForm::kNone) {
    PENSTOCK_TRY(companion, LoadSidecar(path));
  }
  if (header == HeaderForm::kHidden) {
    AddNote(
        fmt::format("the header of {} is hidden in blanks, which works in this release only; write "
                    "the file again "
                    "('penstock schedule' does)",
                    path));
  }
  auto schedule = ParseCsv(text, FirstSet(options, companion));
  if (!schedule) return tl::unexpected(In(path, std::move(schedule).error()));
  schedule->algorithm = fs::path(path).filename().string();
  return schedule;
}

Status SaveSchedule(const Schedule& schedule, const std::string& path) {
  const std::string sidecar = SidecarPath(path);
  std::error_code error;
  if (sidecar != path && fs::exists(sidecar, error)) {
    // Never remove a file that is not a schedule's companion.
    if (!LoadSidecarFile(sidecar)) {
      return InvalidArgument("{} exists and is not a schedule's companion; choose another name",
                             sidecar);
    }
    if (!fs::remove(sidecar, error) && error) {
      return MakeError(ErrorCode::kUnavailable, "cannot remove {}: {}", sidecar, error.message());
    }
  }
  return WriteFileAtomically(path, WriteCsv(schedule));
}

}  // namespace penstock
