#include "plan/search/engine_config.h"

#include <string_view>
#include <utility>

#include "config/run_schedule.h"

namespace penstock {
namespace {

// Names the option of a plan in place of the key of a configuration.
Error OfPlan(Error error) {
  constexpr std::pair<std::string_view, std::string_view> kNames[] = {
      {"parallel.data", "data_parallel"},  {"parallel.", ""}, {"pipeline.csv", "schedule"},
      {"pipeline.stage_layers", "layout"}, {"pipeline.", ""}, {"model.", "model"}};
  for (const auto& [key, option] : kNames) {
    if (!error.parameter.starts_with(key)) continue;
    error.parameter = option.empty() ? error.parameter.substr(key.size()) : std::string(option);
    break;
  }
  return error;
}

// A replica of the pipeline has the schedule, and all of them do.
Status CheckSchedule(TrainConfig config, const DividedModel& job) {
  config.parallel.data = config.parallel.expert = 1;
  config.parallel.zero = 0;
  config.pipeline.stage_layers.assign(job.layers.begin(), job.layers.end());
  const auto schedule = ScheduleOfRun(*job.schedule, config);
  return schedule ? Status() : tl::unexpected(OfPlan(schedule.error()));
}

}  // namespace

Result<TrainConfig> EngineConfigOf(const DividedModel& job) {
  const JobDivision& division = job.division;
  TrainConfig config;
  PENSTOCK_TRY(config.model, job.engine_model);
  config.batch = division.micro_batch;
  config.parallel.data = division.data;
  config.parallel.expert = division.expert;
  config.parallel.tensor = division.tensor;
  config.parallel.context = division.context;
  if (division.context > 1) {
    config.parallel.context_exchange =
        kContextExchangeNames[static_cast<std::size_t>(division.context_exchange)];
  }
  config.parallel.sequence_parallel = job.sequence_parallel;
  config.parallel.gather_again = division.gather_again;
  config.parallel.zero = division.data > 1 ? division.zero : 0;
  if (job.precision != Precision::kFp32 && job.precision != Precision::kBf16) {
    return InvalidParameter("precision", "{}: the engine computes in f32 or bf16",
                            kPrecisionNames[static_cast<std::size_t>(job.precision)]);
  }
  config.precision = job.precision == Precision::kFp32 ? "f32" : "bf16";
  return config;
}

Status CheckEngineRuns(const DividedModel& job) {
  PENSTOCK_TRY(TrainConfig config, EngineConfigOf(job));
  config.pipeline.csv = "schedule.csv";  // which says how many microbatches there are
  if (const Status status = CheckParallel(config); !status) {
    return tl::unexpected(OfPlan(status.error()));
  }
  return job.schedule == nullptr ? Status() : CheckSchedule(std::move(config), job);
}

}  // namespace penstock
