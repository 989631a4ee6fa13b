// The passes by name, with arguments as text: what --pass NAME[=ARG],... runs.
#pragma once

#include <functional>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "schedule/passes/passes.h"

namespace penstock {

// A pass's arguments: "2:keep" are two. Each Take removes what it recognises, in any order; Done
// refuses what is left.
class PassArguments {
 public:
  explicit PassArguments(std::string_view text);
  // A number of at least 0; nothing where there is none.
  std::optional<double> TakeNumber();
  // The same, whole.
  std::optional<int> TakeCount();
  bool TakeWord(std::string_view word);
  Status Done() const;

 private:
  std::vector<std::string> left_;
};

struct PassContext {
  Costs costs;   // one entry a stage
  Pricer price;  // simulates under these costs; empty where no simulator is at hand
};

struct SchedulePass {
  std::string_view name;
  std::string_view arguments;  // as in "[N][:keep]"; empty where it takes none
  std::string_view summary;    // one line
  std::function<Result<Schedule>(const Schedule&, PassArguments, const PassContext&)> run;
};

// The arguments of a pass that takes an amount of memory alone, in the unit of the costs.
inline constexpr std::string_view kLimitArgument = "[LIMIT]";

std::span<const SchedulePass> SchedulePasses();
// By name; the error lists the names.
Result<const SchedulePass*> FindSchedulePass(std::string_view name);

// Runs "NAME" or "NAME=ARGUMENTS" of `passes`, one after the other. Errors name the pass.
// Requires: the schedule is valid.
Result<Schedule> RunSchedulePasses(Schedule schedule, std::span<const std::string> passes,
                                   const PassContext& context);

// The table's entries, each in the file of its pass.
SchedulePass CommunicationPass();
SchedulePass ShardingPass();
SchedulePass ReduceGradPass();
SchedulePass SplitBackwardPass();
SchedulePass MergeBackwardPass();
SchedulePass OverlapPass();
SchedulePass RecomputePass();
SchedulePass OffloadPass();
SchedulePass OptimizerPass();

}  // namespace penstock
