// penstock validate: proves a schedule's file sound, or names its first faults.
#include "schedule/validate.h"

#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/schedule_options.h"

namespace penstock {
namespace {

using Json = nlohmann::ordered_json;

class ValidateCommand : public Command {
 public:
  std::string Name() const override { return "validate"; }
  std::string Summary() const override { return "Prove a schedule sound, or name its faults"; }
  void Define(CLI::App& app) override {
    app.add_option("FILE", options_.csv, "The schedule's CSV file")->required();
    app.add_option("-m,--microbatches", options_.microbatches,
                   "Microbatches of a batch (default: as many as the file names)");
    app.add_option("--cuts", options_.cuts, "Pieces of a microbatch along the sequence");
    app.add_option("--steps", options_.steps, "Batches in the file");
    options_.DefineCsvReading(app);
    options_.DefineFormat(app);
    app.add_option("--max-faults", max_faults_, "Most faults to name")->check(CLI::PositiveNumber);
    app.footer("Exit code: 0 valid, 1 invalid, 2 unreadable.");
  }

  Result<int> Run() override {
    PENSTOCK_TRY(const OutputFormat format, options_.Format());
    PENSTOCK_TRY(const Schedule schedule, options_.LoadCsv());
    const std::vector<Fault> faults = Validate(schedule, {.max_faults = max_faults_});
    switch (format) {
      case OutputFormat::kJson:
        PrintJson(faults);
        break;
      case OutputFormat::kCsv:
        fmt::print("rank,position,action,reason\n");
        for (const Fault& fault : faults) {
          fmt::print("{},{},{},\"{}\"\n", fault.rank, fault.position, fault.action, fault.reason);
        }
        break;
      case OutputFormat::kTable:
        PrintText(schedule, faults);
        break;
    }
    return faults.empty() ? kExitOk : kExitFailed;
  }

 private:
  static void PrintJson(const std::vector<Fault>& faults) {
    Json object = {{"valid", faults.empty()}, {"faults", Json::array()}};
    for (const Fault& fault : faults) {
      object["faults"].push_back({{"rank", fault.rank},
                                  {"position", fault.position},
                                  {"action", fault.action},
                                  {"reason", fault.reason}});
    }
    fmt::print("{}\n", object.dump(2));
  }

  void PrintText(const Schedule& schedule, const std::vector<Fault>& faults) const {
    if (faults.empty()) {
      fmt::print("{} is valid: {} ranks, {} stages, {} microbatches, {} actions\n", *options_.csv,
                 schedule.ranks(), schedule.stages(), schedule.microbatches,
                 schedule.action_count());
      return;
    }
    const bool more = faults.size() == static_cast<std::size_t>(max_faults_);
    fmt::print("{} is not valid: {}{} fault{}\n", *options_.csv, more ? "at least " : "",
               faults.size(), faults.size() == 1 ? "" : "s");
    for (const Fault& fault : faults) fmt::print("{}", Describe(schedule, fault));
  }

  ScheduleOptions options_;
  int max_faults_ = ValidateOptions{}.max_faults;
};

}  // namespace

std::unique_ptr<Command> MakeValidateCommand() { return std::make_unique<ValidateCommand>(); }

}  // namespace penstock
