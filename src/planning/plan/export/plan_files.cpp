#include "plan/export/plan_files.h"

#include <filesystem>

#include "base/files.h"
#include "base/text/quote.h"
#include "plan/export/framework_texts.h"
#include "schedule/text/text.h"

namespace penstock {
namespace {

struct Format {
  std::string_view name;
  std::string_view framework;  // whose price the plan needs
  const char* file;
  Result<std::string> (*text)(const PlanJob& job, const std::string& csv);
};

constexpr Format kFormats[] = {
    {"penstock", "penstock", "train.yaml", &TrainText},
    {"megatron", "megatron", "megatron.sh", &MegatronText},
    {"megatron-bridge", "megatron", "megatron_bridge.sh",
     [](const PlanJob& job, const std::string&) { return BridgeText(job); }},
    {"torchtitan", "torchtitan", "torchtitan_plan.py", &TorchtitanText},
};

// What every file of a plan begins with.
constexpr std::string_view kBegin = "# A plan";

// Refuses to replace a file of the user.
Status CheckIsOurs(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return {};
  PENSTOCK_TRY(const std::string text, ReadFile(path));
  if (text.starts_with(kBegin)) return {};
  return InvalidArgument("{} exists and is not of a plan; give another folder", Quote(path));
}

Status MakeFolder(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (!error) return {};
  return InvalidArgument("cannot make the folder {}: {}", Quote(folder), error.message());
}

// Another framework's plan would have other kernels, and may be another one.
Result<std::string> TextOf(const Format& format, const TrainingPlan& plan, const PlanJob& job,
                           const std::string& csv) {
  if (!plan.framework.empty() && plan.framework != format.framework) {
    return InvalidParameter("for", "{}: the plan is priced for it; give {}", plan.framework,
                            format.framework);
  }
  return format.text(job, csv);
}

}  // namespace

Result<std::vector<PlanFile>> WritePlanFiles(const TrainingPlan& plan, const std::string& folder) {
  PENSTOCK_TRY(const PlanJob job, JobOf(plan));
  PENSTOCK_TRY_STATUS(MakeFolder(folder));
  const auto path_of = [&](const char* file) {
    return (std::filesystem::path(folder) / file).string();
  };
  for (const Format& format : kFormats) PENSTOCK_TRY_STATUS(CheckIsOurs(path_of(format.file)));
  const std::string csv = path_of("schedule.csv");
  PENSTOCK_TRY_STATUS(SaveSchedule(job.schedule, csv));
  std::vector<PlanFile> files = {{"schedule", csv}};
  for (const Format& format : kFormats) {
    PlanFile& file = files.emplace_back(PlanFile{format.name, path_of(format.file)});
    const auto text = TextOf(format, plan, job, csv);
    if (text) {
      PENSTOCK_TRY_STATUS(WriteFileAtomically(file.path, *text));
      continue;
    }
    file.reason = text.error();
    std::error_code ignored;  // if it cannot be removed, it cannot be written either
    std::filesystem::remove(file.path, ignored);
  }
  return files;
}

}  // namespace penstock
