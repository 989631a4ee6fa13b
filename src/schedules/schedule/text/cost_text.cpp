#include "schedule/text/cost_text.h"

#include <vector>

#include "base/text/nearest.h"
#include "base/text/numbers.h"
#include "base/text/quote.h"
#include "base/text/split.h"

namespace penstock {

Result<UniformCost> ParseCost(std::string_view text) {
  std::vector<double> values;
  for (const std::string& part : SplitAt(text, ',')) {
    const auto value = ParseNumber(part);
    const Status status = value ? CheckTime(*value) : Status(tl::unexpected(value.error()));
    if (!status) return InvalidArgument("{}: {}", Quote(text), status.error().line());
    values.push_back(*value);
  }
  if (values.size() == 1) return UniformCost{values[0], values[0], values[0]};
  if (values.size() == 3) return UniformCost{values[0], values[1], values[2]};
  if (values.size() == 4 && values[3] <= 1) {
    return UniformCost{values[0], values[1], values[2], values[3]};
  }
  if (values.size() == 4) {
    return InvalidArgument(
        "{}: the fourth number, the share of the activations that W keeps, is 0 to 1, not {}",
        Quote(text), values[3]);
  }
  return InvalidArgument(
      "{}: give F,I,W (times of one rank and microbatch), F,I,W,KEPT (with the part of the "
      "activations that W keeps) or one number",
      Quote(text));
}

Result<Objective> ParseObjective(std::string_view text) {
  if (text == "makespan") return Objective::kMakespan;
  if (text == "span") return Objective::kSpan;
  return InvalidArgument("{}: give makespan or span{}", Quote(text),
                         Suggestion(text, {kObjectiveNames.begin(), kObjectiveNames.end()}));
}

Result<OverlapRule> ParseOverlap(std::string_view text) {
  constexpr double kMostFactor = 1000;
  if (text == "max") return OverlapRule{OverlapRule::Kind::kMax, 1};
  if (text == "sum") return OverlapRule{OverlapRule::Kind::kSum, 1};
  const auto factor = ParseNumber(text);
  if (!factor || *factor < 0 || *factor > kMostFactor) {
    return InvalidArgument("{}: give max, sum, or a factor of F + B from 0 to {}{}", Quote(text),
                           kMostFactor,
                           Suggestion(text, {kOverlapNames.begin(), kOverlapNames.end()}));
  }
  return OverlapRule{OverlapRule::Kind::kFactor, *factor};
}

}  // namespace penstock
