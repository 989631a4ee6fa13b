// penstock validate: proves a schedule valid, or lists its first faults.
#include "schedule/validate/validate.h"

#include <nlohmann/json.hpp>

#include "base/index.h"
#include "cli/command/command.h"
#include "cli/options/option_values.h"
#include "cli/options/simulate_config.h"
#include "cli/output/print_json.h"

namespace penstock {
namespace {

using Json = nlohmann::ordered_json;

class ValidateCommand : public Command {
 public:
  std::string Name() const override { return "validate"; }
  std::string Summary() const override { return "Prove a schedule valid, or list its faults"; }
  void Define(CLI::App& app) override {
    options_.DefineSource(app);
    options_.DefineShape(app);
    options_.DefineCosts(app);
    options_.DefineFormat(app);
    AddInt(app, "--max-faults", max_faults_, "Report at most this many faults", {.least = 1});
  }

  std::string ExitCodes() const override {
    return "0 valid; 1 not valid; 2 bad usage or a file that cannot be read";
  }

  Result<int> Run() override {
    PENSTOCK_TRY(const OutputFormat format, options_.Format());
    options_.prices = false;
    PENSTOCK_TRY(const Schedule schedule, LoadOne());
    const std::vector<Fault> faults = Validate(schedule, {.max_faults = MostFaults()});
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
  int MostFaults() const { return max_faults_.value_or(ValidateOptions{}.max_faults); }

  // The given schedule. A file is not validated yet.
  Result<Schedule> LoadOne() {
    PENSTOCK_TRY(std::optional<Choice> primus, ReadSources(options_));
    const std::size_t count = primus ? primus->schedules.size() : options_.candidates.size();
    if (count > 1) return InvalidArgument("{} schedules are given; validate takes one", count);
    if (primus) {
      label_ = primus->schedules.front().label;
      return std::move(primus->schedules.front().schedule);
    }
    if (count == 1 && options_.candidates.front().kind == Candidate::Kind::kFile) {
      const Candidate& file = options_.candidates.front();
      label_ = file.label();
      PENSTOCK_TRY(const ScheduleOptions own, options_.For(file));
      PENSTOCK_TRY(ScheduleOptions::LoadedFile loaded, own.LoadFile(file.name));
      return std::move(loaded.schedule);
    }
    PENSTOCK_TRY(std::vector<ChosenSchedule> built, options_.Build());
    label_ = built.front().label;
    return std::move(built.front().schedule);
  }

  static void PrintJson(const std::vector<Fault>& faults) {
    Json object = {{"valid", faults.empty()}, {"faults", Json::array()}};
    for (const Fault& fault : faults) {
      const auto place = [](int number) { return number < 0 ? Json() : Json(number); };
      object["faults"].push_back({{"rank", place(fault.rank)},
                                  {"position", place(fault.position)},
                                  {"action", fault.action},
                                  {"reason", fault.reason}});
    }
    PrintObject(object);
  }

  void PrintText(const Schedule& schedule, const std::vector<Fault>& faults) const {
    if (faults.empty()) {
      fmt::print("{} is valid: {} ranks, {} stages, {} microbatches, {} actions\n", label_,
                 schedule.ranks(), schedule.stages(), schedule.microbatches,
                 schedule.action_count());
      return;
    }
    const bool more = faults.size() == Index(MostFaults());
    fmt::print("{} is not valid: {}{} fault{}\n", label_, more ? "at least " : "", faults.size(),
               faults.size() == 1 ? "" : "s");
    for (const Fault& fault : faults) fmt::print("{}", Describe(schedule, fault));
  }

  ScheduleOptions options_;
  std::string label_;  // what is validated
  std::optional<int> max_faults_;
};

}  // namespace

std::unique_ptr<Command> MakeValidateCommand() { return std::make_unique<ValidateCommand>(); }

}  // namespace penstock
