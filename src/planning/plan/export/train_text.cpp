#include "config/run_schedule.h"
#include "config/train_config.h"
#include "plan/export/engine_model.h"
#include "plan/export/framework_texts.h"

namespace penstock {
namespace {

constexpr std::string_view kEngine = "the engine";
constexpr int kCores = 4;  // no choice depends on it, because the file has the schedule

Result<TrainConfig> ConfigOf(const PlanJob& job, const std::string& csv) {
  const JobDivision& division = job.division;
  TrainConfig config;
  config.name = "plan";
  PENSTOCK_TRY(config.model, EngineModelOf(job.shape(), job.scenario.model.value_or(""),
                                           job.model.batch.sequence));
  config.batch = division.micro_batch;
  config.pipeline.csv = csv;
  for (const LayerRange& stage : job.stages) {
    config.pipeline.stage_layers.push_back(stage.end - stage.begin);
  }
  config.parallel.data = division.data;
  config.parallel.expert = division.expert;
  config.parallel.tensor = division.tensor;
  config.parallel.context = division.context;
  config.parallel.zero = division.data > 1 ? division.zero : 0;
  const Precision precision = job.model.batch.precision;
  if (precision != Precision::kFp32 && precision != Precision::kBf16) {
    return InvalidParameter("precision", "{}: {} computes in f32 or bf16",
                            job.scenario.precision.value_or(""), kEngine);
  }
  config.precision = precision == Precision::kFp32 ? "f32" : "bf16";
  return config;
}

// Keeps the lines of keys that differ, with their sections.
std::string DifferentLines(const TrainConfig& config) {
  std::string text, open_section;
  for (const KeyDifference& key : DifferentKeys(TrainConfig(), config)) {
    const std::size_t dot = key.key.find('.');
    const std::string section = dot == std::string::npos ? "" : key.key.substr(0, dot);
    if (section != open_section) text += fmt::format("{}:\n", section);
    open_section = section;
    text += fmt::format("{}{}: {}\n", section.empty() ? "" : "  ",
                        section.empty() ? key.key : key.key.substr(dot + 1), key.now);
  }
  return text;
}

}  // namespace

Result<std::string> TrainText(const PlanJob& job, const std::string& csv) {
  PENSTOCK_TRY_STATUS(RefuseOtherSettings(job, kEngine, {}));
  PENSTOCK_TRY_STATUS(CheckSites(job, kEngine, kReplicasOutermost));
  PENSTOCK_TRY_STATUS(CheckPenstock(job.divided()));
  PENSTOCK_TRY(const TrainConfig config, ConfigOf(job, csv));
  const std::string text =
      "# A plan for 'penstock train'. Set data.path, steps and optimizer.lr.\n" +
      DifferentLines(config);
  PENSTOCK_TRY(TrainConfig read, ParseTrainConfig(text, "the configuration"));
  PENSTOCK_TRY_STATUS(ChooseSchedule(read, kCores));
  return text;
}

}  // namespace penstock
