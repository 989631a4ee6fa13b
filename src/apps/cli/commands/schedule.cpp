// penstock schedule: writes the actions of a schedule, one line per rank.
#include <nlohmann/json.hpp>

#include "cli/command/command.h"
#include "cli/options/option_values.h"
#include "cli/options/output_format.h"
#include "cli/options/scenario_options.h"
#include "cli/output/print_json.h"
#include "schedule/passes/passes.h"
#include "schedule/text/text.h"
#include "schedule/validate/receive_slots.h"

namespace penstock {
namespace {

using Json = nlohmann::ordered_json;

void PrintTable(const Schedule& schedule) {
  std::size_t width = 0;
  for (const Lane& lane : schedule.lanes) {
    for (const Action& action : lane) width = std::max(width, ToText(action).size());
  }
  for (std::size_t rank = 0; rank < schedule.lanes.size(); ++rank) {
    std::string line = fmt::format("rank {:<3}", rank);
    for (const Action& action : schedule.lanes[rank]) {
      line += fmt::format(" {:<{}}", ToText(action), width);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    fmt::print("{}\n", line);
  }
}

Json ToJson(const Schedule& schedule, const std::string& file) {
  Json object;
  object["schedule"] = schedule.algorithm;
  object["ranks"] = schedule.ranks();
  object["chunks"] = schedule.placement.chunks();
  object["stages"] = schedule.stages();
  object["microbatches"] = schedule.microbatches;
  object["replicas"] = schedule.placement.replicas();
  object["slices"] = schedule.slices;
  object["steps"] = schedule.steps;
  object["actions"] = schedule.action_count();
  if (!file.empty()) {
    object["file"] = file;
    return object;
  }
  const ReceiveSlots slots = AssignReceiveSlots(schedule);
  Json rows = Json::array();
  for (std::size_t rank = 0; rank < schedule.lanes.size(); ++rank) {
    const Lane& lane = schedule.lanes[rank];
    Json actions = Json::array(), own = Json::array();
    for (std::size_t i = 0; i < lane.size(); ++i) {
      actions.push_back(ToText(lane[i]));
      if (IsRecv(lane[i].first.op)) own.push_back(slots.slots[rank][i]);
    }
    rows.push_back({{"actions", std::move(actions)}});
    if (!own.empty()) rows.back()["receive_slots"] = std::move(own);
  }
  object["per_rank"] = std::move(rows);
  return object;
}

class ScheduleCommand : public Command {
 public:
  std::string Name() const override { return "schedule"; }
  std::string Summary() const override { return "Write the actions of a schedule as CSV"; }
  void Define(CLI::App& app) override {
    options_.DefineSchedules(app);
    format_.Define(app);
    app.add_flag("--lower", lower_,
                 "Add the SEND and RECV actions between ranks (and REDUCE_GRAD with --torch)");
    app.add_flag("--torch", torch_, "Refuse actions that torch.distributed.pipelining cannot read");
    AddText(app, "-o,--output", output_, "Write this CSV file instead of printing it")
        ->type_name("FILE");
  }

  Result<int> Run() override {
    PENSTOCK_TRY(const OutputFormat format, format_.Format());
    if (format_.format && format == OutputFormat::kTable && !output_.empty()) {
      return InvalidArgument(
          "--format table has no effect here: --output writes CSV; leave one of them out");
    }
    PENSTOCK_TRY(Schedule schedule, MakeSchedule());
    if (torch_) PENSTOCK_TRY_STATUS(RequireTorchOps(schedule));
    if (lower_) schedule = torch_ ? LowerForTorch(schedule) : AddCommunication(schedule);
    if (!output_.empty()) PENSTOCK_TRY_STATUS(SaveSchedule(schedule, output_));

    if (format == OutputFormat::kJson) {
      PrintObject(ToJson(schedule, output_));
    } else if (!output_.empty()) {
      fmt::print("{}: {} ranks, {} stages, {} microbatches, {} actions\n", output_,
                 schedule.ranks(), schedule.stages(), schedule.microbatches,
                 schedule.action_count());
    } else if (format_.format && format == OutputFormat::kTable) {
      PrintTable(schedule);
    } else {
      fmt::print("{}", WriteCsv(schedule));
    }
    return kExitOk;
  }

 private:
  Result<Schedule> MakeSchedule() {
    options_.purpose.prices = false;
    PENSTOCK_TRY(PrimusSchedules choice, options_.Choose());
    if (choice.schedules.size() != 1) {
      return InvalidArgument("{} schedules are given; schedule writes one",
                             choice.schedules.size());
    }
    return std::move(choice.schedules.front().schedule);
  }

  ScenarioOptions options_;
  FormatOptions format_;
  std::string output_;
  bool lower_ = false, torch_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeScheduleCommand() { return std::make_unique<ScheduleCommand>(); }

}  // namespace penstock
