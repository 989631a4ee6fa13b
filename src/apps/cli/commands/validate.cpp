// penstock validate: proves a schedule valid, or lists its first faults.
#include "schedule/validate/validate.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "base/index.h"
#include "cli/command/command.h"
#include "cli/options/option_values.h"
#include "cli/options/output_format.h"
#include "cli/options/scenario_options.h"
#include "cli/output/print_json.h"
#include "scenario/price/load_file.h"
#include "schedule/text/lost_header.h"
#include "schedule/text/text.h"

namespace penstock {
namespace {

using Json = nlohmann::ordered_json;

class ValidateCommand : public Command {
 public:
  std::string Name() const override { return "validate"; }
  std::string Summary() const override { return "Prove a schedule valid, or list its faults"; }
  void Define(CLI::App& app) override {
    options_.DefineSource(app);
    for (const FieldGroup group : {FieldGroup::kShape, FieldGroup::kCosts, FieldGroup::kModel}) {
      options_.Define(app, group);
    }
    format_.Define(app);
    AddInt(app, "--max-faults", max_faults_, "Report at most this many faults", {.least = 1});
  }

  std::string ExitCodes() const override {
    return "0 valid; 1 not valid; 2 bad usage or a file that cannot be read";
  }

  Result<int> Run() override {
    PENSTOCK_TRY(const OutputFormat format, format_.Format());
    options_.purpose.prices = false;
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
    PENSTOCK_TRY(std::optional<PrimusSchedules> primus, options_.ReadSources());
    const std::vector<Candidate>& named = options_.scenario.schedules;
    const std::size_t count = primus ? primus->schedules.size() : named.size();
    if (count > 1) return InvalidArgument("{} schedules are given; validate takes one", count);
    if (count == 1 && !primus && named.front().kind == Candidate::Kind::kFile) {
      label_ = named.front().label();
      auto schedule = LoadFileOf(named.front());
      if (!schedule) return tl::unexpected(options_.AsGiven(std::move(schedule).error(), "csv"));
      return schedule;
    }
    PENSTOCK_TRY(PrimusSchedules built, options_.Build(std::move(primus)));
    label_ = built.schedules.front().label;
    return std::move(built.schedules.front().schedule);
  }

  Result<Schedule> LoadFileOf(const Candidate& file) const {
    PENSTOCK_TRY(const Scenario own, ScenarioOf(options_.scenario, file));
    PENSTOCK_TRY(LoadedFile loaded, LoadFile(own, file.name));
    if (!own.slices) PENSTOCK_TRY_STATUS(RefuseLostHeader(file.name, loaded.schedule));
    return std::move(loaded.schedule);
  }

  // A file of plain microbatches whose order is that of slices has lost the header of an earlier
  // version.
  static Status RefuseLostHeader(const std::string& path, const Schedule& schedule) {
    const int slices = schedule.slices == 1 ? SeemingSlices(schedule) : 1;
    if (slices == 1 || std::filesystem::is_directory(path)) return {};
    PENSTOCK_TRY(const std::string text, ReadFile(path));
    if (FormOfHeader(text) != HeaderForm::kNone) return {};
    return InvalidArgument(
        "{}: the backwards of each {} microbatches run in reverse order, as those of sequence "
        "slices do, and no "
        "header says what they are; begin the file with a line slices={} (or slices=1)",
        path, slices, slices);
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

  ScenarioOptions options_;
  FormatOptions format_;
  std::string label_;  // what is validated
  std::optional<int> max_faults_;
};

}  // namespace

std::unique_ptr<Command> MakeValidateCommand() { return std::make_unique<ValidateCommand>(); }

}  // namespace penstock
