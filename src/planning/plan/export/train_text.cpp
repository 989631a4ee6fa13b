#include <string>

#include "base/result.h"
#include "config/run_schedule.h"
#include "config/train_config.h"
#include "plan/export/framework_texts.h"
#include "plan/search/engine_config.h"

namespace penstock {
namespace {

constexpr std::string_view kEngine = "the engine";
constexpr int kCores = 4;  // no choice depends on it, because the file has the schedule

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
  PENSTOCK_TRY_STATUS(RefuseOtherSettings(job, kEngine, {"context_exchange"}));
  const DividedModel divided = job.divided();
  PENSTOCK_TRY_STATUS(CheckPenstock(divided));
  PENSTOCK_TRY(TrainConfig config, EngineConfigOf(divided));
  config.name = "plan";
  config.pipeline.csv = csv;
  for (const LayerRange& stage : job.stages) {
    config.pipeline.stage_layers.push_back(stage.end - stage.begin);
  }
  const std::string text =
      "# A plan for 'penstock train'. Set data.path, steps and optimizer.lr.\n" +
      DifferentLines(config);
  PENSTOCK_TRY(TrainConfig read, ParseTrainConfig(text, "the configuration"));
  PENSTOCK_TRY_STATUS(ChooseSchedule(read, kCores));
  return text;
}

}  // namespace penstock
