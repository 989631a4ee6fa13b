#include "interop/traces/clocks.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/index.h"
#include "interop/traces/step_inputs.h"

namespace penstock {
namespace {

// From one rank to another: the least that the second rank's clock must be set forward relative to
// the first rank's, so that every input is computed before its reader starts, or before it ends.
struct ClockBounds {
  double before_start = 0;
  double before_end = 0;
};
using BoundsOfRanks = std::map<std::pair<int, int>, ClockBounds>;

BoundsOfRanks BoundsOf(OneStep& step) {
  BoundsOfRanks bounds;
  ForEachInput(step, [&](const StepInput& input) {
    const ClockBounds now = {input.made.end - input.read->start, input.made.end - input.read->end};
    const auto [at, added] = bounds.try_emplace({input.from, input.to}, now);
    at->second.before_start = std::max(at->second.before_start, now.before_start);
    at->second.before_end = std::max(at->second.before_end, now.before_end);
  });
  return bounds;
}

// By how much to set the second clock forward.
double MiddleOf(const ClockBounds& there, const ClockBounds& back) {
  // Ranges that include waits start too early for the tighter bounds.
  const bool tight = there.before_start <= -back.before_start;
  return tight ? (there.before_start - back.before_start) / 2
               : (there.before_end - back.before_end) / 2;
}

}  // namespace

void AlignClocks(OneStep& step) {
  constexpr double kMicroseconds = 1;
  const BoundsOfRanks bounds = BoundsOf(step);
  if (std::ranges::none_of(
          bounds, [](const auto& entry) { return entry.second.before_end > kMicroseconds; })) {
    return;
  }
  const std::size_t ranks = step.timeline.spans.size();
  std::vector<std::optional<double>> shift(ranks);
  std::vector<int> reached = {0};
  shift[0] = 0;
  for (std::size_t next = 0; next < reached.size(); ++next) {
    const int from = reached[next];
    for (int to = 0; to < static_cast<int>(ranks); ++to) {
      const auto there = bounds.find({from, to});
      const auto back = bounds.find({to, from});
      if (shift[Index(to)] || there == bounds.end() || back == bounds.end()) continue;
      shift[Index(to)] = *shift[Index(from)] + MiddleOf(there->second, back->second);
      reached.push_back(to);
    }
  }
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    for (Span& span : step.timeline.spans[rank]) {
      span.start += shift[rank].value_or(0);
      span.end += shift[rank].value_or(0);
    }
  }
}

}  // namespace penstock
