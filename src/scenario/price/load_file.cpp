#include "scenario/price/load_file.h"

#include <filesystem>
#include <tuple>
#include <utility>

#include "interop/primus/dump.h"
#include "interop/traces/recorded_run.h"
#include "scenario/fields.h"
#include "scenario/price/params.h"
#include "schedule/text/cost_text.h"
#include "schedule/text/text.h"

namespace penstock {
namespace {

// Overrides the latency and overlap of costs that a file has.
Status SetTransferRules(const Scenario& scenario, Costs& costs) {
  if (scenario.comm) {
    PENSTOCK_TRY_STATUS(CheckUnit("comm", *scenario.comm, PlainTimeOf(scenario)));
    costs.comm = scenario.comm->value;
  }
  if (!scenario.overlap) return {};
  PENSTOCK_TRY(costs.overlap, Of("overlap", ParseOverlap(*scenario.overlap)));
  return {};
}

Result<LoadedFile> LoadDump(const Scenario& scenario, const std::string& path) {
  PENSTOCK_TRY(PrimusDump dump, LoadPrimusDump(path, scenario.iteration));
  LoadedFile loaded;
  loaded.schedule = std::move(dump.schedule);
  if (dump.measured) loaded.measured = std::move(dump.timeline);
  if (scenario.has_costs()) return loaded;
  PENSTOCK_TRY_STATUS(SetTransferRules(scenario, dump.costs));
  loaded.costs = std::move(dump.costs);
  loaded.memory_unit = dump.memory_unit;
  return loaded;
}

Result<LoadedFile> LoadRecorded(const Scenario& scenario, const std::string& path) {
  PENSTOCK_TRY(RecordedRun run,
               LoadRecordedRun(path, {scenario.trace_rule.value_or(""), scenario.iteration,
                                      scenario.chunks, scenario.microbatches}));
  LoadedFile loaded;
  loaded.schedule = std::move(run.schedule);
  loaded.measured = std::move(run.timeline);
  loaded.reading = std::move(run.reading);
  if (scenario.has_costs()) return loaded;
  PENSTOCK_TRY_STATUS(SetTransferRules(scenario, run.costs));
  loaded.costs = std::move(run.costs);
  loaded.time_unit = run.time_unit;
  return loaded;
}

Result<LoadedFile> LoadCsv(const Scenario& scenario, const std::string& path) {
  CsvOptions options;
  options.microbatches = scenario.microbatches;
  options.replicas = scenario.replicas;
  options.slices = scenario.slices;
  options.steps = scenario.steps;
  if (scenario.weight_policy) {
    PENSTOCK_TRY(options.weights, Of("weight_policy", ParseWeights(*scenario.weight_policy)));
  }
  PENSTOCK_TRY(Untrained untrained, UntrainedOf(scenario));
  if (!untrained.frozen.empty()) options.frozen = std::move(untrained.frozen);
  if (!untrained.adapters.empty()) options.adapters = std::move(untrained.adapters);
  LoadedFile loaded;
  PENSTOCK_TRY(loaded.schedule, LoadSchedule(path, options));
  return loaded;
}

Result<LoadedFile> Load(const Scenario& scenario, const std::string& path) {
  std::error_code error;
  if (IsPrimusDump(path)) return LoadDump(scenario, path);
  if (IsRecordedRun(path)) return LoadRecorded(scenario, path);
  if (std::filesystem::is_directory(path, error)) return tl::unexpected(NoTracesIn(path));
  return LoadCsv(scenario, path);
}

}  // namespace

Result<LoadedFile> LoadFile(const Scenario& scenario, const std::string& path) {
  PENSTOCK_TRY_STATUS(CheckRanges(scenario));
  PENSTOCK_TRY(LoadedFile loaded, Load(scenario, path));
  const Schedule& schedule = loaded.schedule;
  const std::tuple<const char*, std::optional<int>, int> sizes[] = {
      {"ranks", scenario.ranks, schedule.ranks()},
      {"chunks", scenario.chunks, schedule.placement.chunks()},
      {"microbatches", scenario.microbatches, schedule.microbatches}};
  for (const auto& [field, asked, has] : sizes) {
    if (!asked || *asked == has) continue;
    return InvalidParameter(field, "{}: {} has {}", *asked, path, has);
  }
  return loaded;
}

}  // namespace penstock
