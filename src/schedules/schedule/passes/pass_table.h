// The passes by name, with arguments as text: "NAME" or "NAME=ARGUMENTS".
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

// The arguments of a pass: "2:keep" is two of them. Each Take removes what it recognizes, in any
// order. Done refuses the rest.
class PassArguments {
 public:
  explicit PassArguments(std::string_view text);
  // Returns a number of at least 0, or nothing if there is none.
  std::optional<double> TakeNumber();
  // Removes a whole number from the front and returns it, if there is one.
  std::optional<int> TakeCount();
  bool TakeWord(std::string_view word);
  Status Done() const;

 private:
  std::vector<std::string> left_;
};

struct PassContext {
  Costs costs;   // one entry per stage
  Pricer price;  // simulates with these costs; empty without a simulator
};

struct SchedulePass {
  std::string_view name;
  std::string_view arguments;  // such as "[N][:keep]"; empty if it takes none
  std::string_view summary;    // one line
  std::function<Result<Schedule>(const Schedule&, PassArguments, const PassContext&)> run;
};

// The arguments of a pass that takes only an amount of memory, in the unit of the costs.
inline constexpr std::string_view kLimitArgument = "[LIMIT]";

std::span<const SchedulePass> SchedulePasses();
// Finds a pass by name. The error lists the names.
Result<const SchedulePass*> FindSchedulePass(std::string_view name);

// Runs `passes` in order, each "NAME" or "NAME=ARGUMENTS". Errors name the pass.
// Requires: the schedule is valid.
Result<Schedule> RunSchedulePasses(Schedule schedule, std::span<const std::string> passes,
                                   const PassContext& context);

// The entries of the table, each in the file of its pass.
SchedulePass CommunicationPass();
SchedulePass WaitSendPass();
SchedulePass ShardingPass();
SchedulePass ReduceGradPass();
SchedulePass SplitBackwardPass();
SchedulePass MergeBackwardPass();
SchedulePass OverlapPass();
SchedulePass RecomputePass();
SchedulePass OffloadPass();
SchedulePass OptimizerPass();
SchedulePass VocabularyPass();

}  // namespace penstock
