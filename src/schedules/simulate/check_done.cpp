#include "simulate/check_done.h"

#include <string>

#include "base/index.h"
#include "schedule/text/text.h"
#include "schedule/vocabulary.h"

namespace penstock {
namespace {

std::string WaitText(const Schedule& schedule, const LaneState& state, const Arrivals& arrivals,
                     std::size_t rank) {
  const std::string action = ToText(schedule.lanes[rank][state.position]);
  const Arrivals::Key key = state.waits_for;
  if (key == kOtherGradients) {
    return fmt::format("rank {} at {} waits for the gradients of other ranks", rank, action);
  }
  const std::size_t stage = arrivals.StageOf(key);
  if (stage == Index(schedule.stages())) {
    const bool softmax = static_cast<SharedValue>(arrivals.KindOf(key)) == SharedValue::kSoftmax;
    return fmt::format("rank {} at {} waits for {} of microbatch {} on every rank", rank, action,
                       softmax ? "S" : "EMBED", arrivals.MicrobatchOf(key));
  }
  const bool gradient = arrivals.KindOf(key) == ValueKind::kGradient;
  return fmt::format("rank {} at {} waits for the {} of stage {}, microbatch {} (rank {})", rank,
                     action, gradient ? "gradient" : "activation", stage,
                     arrivals.MicrobatchOf(key),
                     schedule.placement.rank_of(static_cast<int>(stage)));
}

}  // namespace

Status CheckDone(const Schedule& schedule, const std::vector<LaneState>& ranks,
                 const Arrivals& arrivals) {
  constexpr std::size_t kNamed = 4;
  std::string waiting;
  std::size_t count = 0;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    if (ranks[r].position == schedule.lanes[r].size()) continue;
    if (++count > kNamed) continue;
    waiting += (count > 1 ? "; " : "") + WaitText(schedule, ranks[r], arrivals, r);
  }
  if (count == 0) return {};
  if (count > kNamed) waiting += fmt::format("; and {} more ranks", count - kNamed);
  return InvalidArgument("the schedule cannot run to its end: {}", waiting);
}

}  // namespace penstock
