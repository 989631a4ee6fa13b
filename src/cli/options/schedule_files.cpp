// The files among the schedules of ScheduleOptions: CSVs, recorded traces and folders of Primus's
// dumps.
#include <tuple>

#include "base/index.h"
#include "base/text/quote.h"
#include "cli/options/schedule_options.h"
#include "interop/primus/dump.h"
#include "interop/traces/recorded_run.h"
#include "schedule/text/cost_text.h"
#include "schedule/text/text.h"
#include "schedule/validate/validate.h"

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

Status ScheduleOptions::SetTransferRules(Costs& costs) const {
  PENSTOCK_TRY_STATUS(CheckTimeUnits());
  if (comm) costs.comm = comm->value;
  if (!overlap) return {};
  const auto rule = ParseOverlap(*overlap);
  if (!rule) return InvalidArgument("--overlap {}", rule.error().line());
  costs.overlap = *rule;
  return {};
}

Result<ScheduleOptions::LoadedFile> ScheduleOptions::LoadDump(const std::string& path) const {
  PENSTOCK_TRY(PrimusDump dump, LoadPrimusDump(path, iteration));
  LoadedFile loaded;
  loaded.schedule = std::move(dump.schedule);
  if (dump.measured) loaded.measured = std::move(dump.timeline);
  if (says_costs()) return loaded;
  PENSTOCK_TRY_STATUS(SetTransferRules(dump.costs));
  loaded.costs = std::move(dump.costs);
  loaded.memory_unit = dump.memory_unit;
  return loaded;
}

Result<ScheduleOptions::LoadedFile> ScheduleOptions::LoadRecorded(const std::string& path) const {
  PENSTOCK_TRY(RecordedRun run,
               LoadRecordedRun(path, {trace_rule.value_or(""), iteration, chunks, microbatches}));
  LoadedFile loaded;
  loaded.schedule = std::move(run.schedule);
  loaded.measured = std::move(run.timeline);
  if (says_costs()) return loaded;
  PENSTOCK_TRY_STATUS(SetTransferRules(run.costs));
  loaded.costs = std::move(run.costs);
  loaded.time_unit = run.time_unit;
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
  } else if (IsRecordedRun(path)) {
    PENSTOCK_TRY(loaded, LoadRecorded(path));
  } else {
    CsvOptions options;
    options.microbatches = microbatches;
    options.replicas = replicas;
    options.slices = slices;
    options.steps = steps;
    if (weights) {
      const auto policy = ParseWeights(*weights);
      if (!policy) return InvalidArgument("--weights: {}", policy.error().line());
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
  if (Status valid = RequireValid(loaded.schedule, path); !valid) {
    valid.error().message += " ('penstock validate' shows all)";
    return tl::unexpected(std::move(valid).error());
  }
  ChosenSchedule chosen;
  chosen.label = path;
  chosen.params = ParamsOf(loaded.schedule, params);
  chosen.heeds_limit = memory_limit.has_value();
  chosen.schedule = std::move(loaded.schedule);
  PENSTOCK_TRY_STATUS(SetUnits(chosen));
  if (!loaded.costs) {
    PENSTOCK_TRY(loaded.costs, CostsFor(chosen.schedule.placement, chosen.schedule.slices));
  }
  PENSTOCK_TRY_STATUS(SetCosts(chosen, std::move(*loaded.costs)));
  if (!loaded.time_unit.empty()) chosen.time_unit = loaded.time_unit;
  if (passes.passes.empty()) chosen.measured = std::move(loaded.measured);
  return chosen;
}

Result<std::optional<std::pair<std::size_t, ChosenSchedule>>> ScheduleOptions::BuildRecorded()
    const {
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const Candidate& candidate = candidates[i];
    if (candidate.kind != Candidate::Kind::kFile || !IsRecordedRun(candidate.name)) continue;
    auto built = BuildOne(candidate);
    if (built) return std::pair(i, std::move(*built));
    if (candidate.options.empty()) return tl::unexpected(std::move(built).error());
    return MakeError(built.error().code, "{}: {}", Quote(candidate.label()), built.error().line());
  }
  return std::nullopt;
}

Result<ScheduleOptions> ScheduleOptions::LikeRecorded(const ChosenSchedule& recorded,
                                                      const Candidate& candidate) const {
  ScheduleOptions like = *this;
  if (!like.ranks) like.ranks = recorded.schedule.ranks();
  if (!like.microbatches) like.microbatches = recorded.schedule.microbatches;
  PENSTOCK_TRY(const ScheduleOptions own, like.For(candidate));
  if (!prices || own.says_costs()) return like;
  PENSTOCK_TRY(const Algorithm* algorithm, FindAlgorithm(candidate.name));
  PENSTOCK_TRY(const ScheduleParams asked, own.Params());
  PENSTOCK_TRY(const ScheduleParams checked, CheckParams(*algorithm, asked));
  const std::vector<StageCosts>& stages = recorded.costs.stages;
  if (algorithm->knobs.replicas == 1 && checked.slices == 1 &&
      Index(checked.ranks) * Index(checked.chunks) == stages.size()) {
    like.stage_costs = stages;
    return like;
  }
  double forward = 0, backward_input = 0, backward_weight = 0;
  for (const StageCosts& stage : stages) {
    forward += stage.forward;
    backward_input += stage.backward_input;
    backward_weight += stage.backward_weight;
  }
  like.cost = fmt::format("{},{},{}", forward / checked.ranks, backward_input / checked.ranks,
                          backward_weight / checked.ranks);
  return like;
}

Result<ChosenSchedule> ScheduleOptions::BuildNextTo(const ChosenSchedule& recorded,
                                                    const Candidate& candidate) const {
  PENSTOCK_TRY(const ScheduleOptions like, LikeRecorded(recorded, candidate));
  PENSTOCK_TRY(ChosenSchedule built, like.BuildOne(candidate));
  PENSTOCK_TRY(const ScheduleOptions own, For(candidate));
  if (!own.says_costs()) built.time_unit = recorded.time_unit;
  return built;
}

}  // namespace penstock
