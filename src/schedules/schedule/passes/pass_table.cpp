#include "schedule/passes/pass_table.h"

#include "base/text/nearest.h"
#include "base/text/numbers.h"
#include "base/text/quote.h"
#include "schedule/validate/validate.h"

namespace penstock {

PassArguments::PassArguments(std::string_view text) {
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(':', begin), text.size());
    left_.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
}

std::optional<double> PassArguments::TakeNumber() {
  for (auto it = left_.begin(); it != left_.end(); ++it) {
    const Result<double> value = ParseNumber(*it);
    if (!value || *value < 0) continue;
    left_.erase(it);
    return *value;
  }
  return std::nullopt;
}

std::optional<int> PassArguments::TakeCount() {
  for (auto it = left_.begin(); it != left_.end(); ++it) {
    const Result<int> value = ParseInt(*it);
    if (!value || *value < 0) continue;
    left_.erase(it);
    return *value;
  }
  return std::nullopt;
}

bool PassArguments::TakeWord(std::string_view word) {
  for (auto it = left_.begin(); it != left_.end(); ++it) {
    if (*it != word) continue;
    left_.erase(it);
    return true;
  }
  return false;
}

Status PassArguments::Done() const {
  if (left_.empty()) return {};
  return InvalidArgument("{} is not one of its arguments", Quote(left_.front()));
}

std::span<const SchedulePass> SchedulePasses() {
  static const std::vector<SchedulePass> passes = {
      CommunicationPass(), WaitSendPass(),      ShardingPass(),  ReduceGradPass(),
      SplitBackwardPass(), MergeBackwardPass(), OverlapPass(),   RecomputePass(),
      OffloadPass(),       OptimizerPass(),     VocabularyPass()};
  return passes;
}

Result<const SchedulePass*> FindSchedulePass(std::string_view name) {
  std::vector<std::string_view> names;
  for (const SchedulePass& pass : SchedulePasses()) {
    if (pass.name == name) return &pass;
    names.push_back(pass.name);
  }
  return NotFound(
      "no pass is called {}; {}", Quote(name),
      DidYouMean(name, names, fmt::format("the passes are {}", fmt::join(names, ", "))));
}

Result<Schedule> RunSchedulePasses(Schedule schedule, std::span<const std::string> passes,
                                   const PassContext& context) {
  for (const std::string& text : passes) {
    const std::size_t equals = std::min(text.find('='), text.size());
    PENSTOCK_TRY(const SchedulePass* pass,
                 FindSchedulePass(std::string_view(text).substr(0, equals)));
    const std::string_view arguments =
        std::string_view(text).substr(std::min(equals + 1, text.size()));
    if (text.ends_with('=') || text.ends_with(':')) {
      return InvalidArgument("pass {}: an argument is empty; give a value or omit it", Quote(text));
    }
    auto result = pass->run(schedule, PassArguments(arguments), context);
    if (!result) {
      const std::string usage =
          pass->arguments.empty() ? std::string() : fmt::format("={}", pass->arguments);
      return tl::unexpected(
          In(fmt::format("pass {}{}", pass->name, usage), std::move(result).error()));
    }
    schedule = std::move(*result);
    const Status valid = RequireValid(schedule, "the result");
    PENSTOCK_CHECK(valid.has_value(), "pass {}: {}", pass->name, valid.error().line());
  }
  return schedule;
}

}  // namespace penstock
