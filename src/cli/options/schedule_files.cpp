// The files among the schedules of ScheduleOptions: CSVs and folders of Primus's dumps.
#include <tuple>

#include "cli/options/schedule_options.h"
#include "interop/primus/dump.h"
#include "schedule/text/cost_text.h"
#include "schedule/text/text.h"

namespace penstock {
namespace {

ScheduleParams ParamsOf(const Schedule& schedule, ScheduleParams params) {
  params.ranks = schedule.ranks();
  params.chunks = schedule.placement.chunks();
  params.microbatches = schedule.microbatches;
  params.slices = schedule.slices;
  params.steps = schedule.steps;
  return params;
}

}  // namespace

Result<ScheduleOptions::LoadedFile> ScheduleOptions::LoadDump(const std::string& path) const {
  PENSTOCK_TRY(PrimusDump dump, LoadPrimusDump(path, iteration));
  LoadedFile loaded;
  loaded.schedule = std::move(dump.schedule);
  if (dump.measured) loaded.measured = std::move(dump.timeline);
  if (cost || stage_costs || costs_by_layer()) return loaded;
  if (comm) dump.costs.comm = *comm;
  if (overlap) {
    const auto rule = ParseOverlap(*overlap);
    if (!rule) return InvalidArgument("--overlap {}", rule.error().message);
    dump.costs.overlap = *rule;
  }
  loaded.costs = std::move(dump.costs);
  loaded.memory_unit = dump.memory_unit;
  return loaded;
}

Result<ScheduleOptions::LoadedFile> ScheduleOptions::LoadFile(const std::string& path) const {
  auto loaded = LoadChecked(path);
  if (loaded) return loaded;
  return tl::unexpected(NameAsGiven(std::move(loaded).error(), given_in, "csv"));
}

Result<ScheduleOptions::LoadedFile> ScheduleOptions::LoadChecked(const std::string& path) const {
  PENSTOCK_TRY_STATUS(CheckCounts());
  LoadedFile loaded;
  if (IsPrimusDump(path)) {
    PENSTOCK_TRY(loaded, LoadDump(path));
  } else {
    CsvOptions options;
    options.microbatches = microbatches;
    options.replicas = replicas;
    options.slices = slices;
    options.steps = steps;
    if (weights) {
      const auto policy = ParseWeights(*weights);
      if (!policy) return InvalidArgument("--weights: {}", policy.error().message);
      options.weights = *policy;
    }
    PENSTOCK_TRY(loaded.schedule, LoadSchedule(path, options));
  }
  const Schedule& schedule = loaded.schedule;
  const std::tuple<const char*, std::optional<int>, int> sizes[] = {
      {"--ranks", ranks, schedule.ranks()},
      {"--chunks", chunks, schedule.placement.chunks()},
      {"--microbatches", microbatches, schedule.microbatches}};
  for (const auto& [option, asked, has] : sizes) {
    if (!asked || *asked == has) continue;
    return InvalidArgument("{} {}: {} has {}", option, *asked, path, has);
  }
  return loaded;
}

Result<ChosenSchedule> ScheduleOptions::BuildFile(const std::string& path) const {
  PENSTOCK_TRY(LoadedFile loaded, LoadFile(path));
  if (loaded.memory_unit.empty() || in_bytes()) return BuildLoaded(path, std::move(loaded));
  ScheduleOptions in_bytes = *this;
  in_bytes.costs_in_bytes = true;
  return in_bytes.BuildLoaded(path, std::move(loaded));
}

Result<ChosenSchedule> ScheduleOptions::BuildLoaded(const std::string& path,
                                                    LoadedFile loaded) const {
  PENSTOCK_TRY(const ScheduleParams params, Params());
  PENSTOCK_TRY_STATUS(RequireValid(loaded.schedule, path));
  ChosenSchedule chosen;
  chosen.label = path;
  chosen.params = ParamsOf(loaded.schedule, params);
  chosen.schedule = std::move(loaded.schedule);
  PENSTOCK_TRY_STATUS(SetUnits(chosen));
  if (!loaded.costs) {
    PENSTOCK_TRY(loaded.costs, CostsFor(chosen.schedule.placement, chosen.schedule.slices));
  }
  PENSTOCK_TRY_STATUS(SetCosts(chosen, std::move(*loaded.costs)));
  if (passes.passes.empty()) chosen.measured = std::move(loaded.measured);
  return chosen;
}

}  // namespace penstock
