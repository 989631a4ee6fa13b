#include "schedule/search/patterns/repeat_middle.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/index.h"

namespace penstock {
namespace {

using Kind = std::pair<Op, int>;  // an op on a stage

Kind KindOf(const Action& action) { return {action.first.op, action.first.stage}; }

// The starts of all runs that have each kind of the lane's actions `times` times. Sets `kinds` to
// their number.
std::vector<std::size_t> FullRuns(const Lane& lane, int times, std::size_t& kinds) {
  std::map<Kind, int> count;
  for (const Action& action : lane) count[KindOf(action)] = 0;
  kinds = count.size();
  const std::size_t length = kinds * Index(times);
  std::vector<std::size_t> begins;
  std::size_t full = 0;  // number of kinds that occur `times` times in the last `length` actions
  for (std::size_t k = 0; k < lane.size(); ++k) {
    if (k >= length && count[KindOf(lane[k - length])]-- == times) --full;
    if (++count[KindOf(lane[k])] == times) ++full;
    if (full == kinds) begins.push_back(k + 1 - length);
  }
  return begins;
}

Action Later(Action action, int microbatches) {
  action.first.microbatch += microbatches;
  return action;
}

}  // namespace

std::vector<Lane> RepeatMiddle(const std::vector<Lane>& lanes,
                               const std::vector<std::size_t>& around, int more) {
  std::vector<Lane> longer(lanes.size());
  for (std::size_t rank = 0; rank < lanes.size(); ++rank) {
    const Lane& lane = lanes[rank];
    std::size_t kinds = 0;
    const std::vector<std::size_t> begins = FullRuns(lane, std::max(1, -more), kinds);
    if (begins.empty()) return {};
    const auto distance = [&](std::size_t begin) {
      return begin < around[rank] ? around[rank] - begin : begin - around[rank];
    };
    const std::size_t begin =
        *std::min_element(begins.begin(), begins.end(),
                          [&](std::size_t a, std::size_t b) { return distance(a) < distance(b); });
    Lane& out = longer[rank];
    out.reserve(lane.size() + kinds * Index(std::max(0, more)));
    const auto run = lane.begin() + static_cast<std::ptrdiff_t>(begin);
    out.assign(lane.begin(), run);
    for (int i = 0; i < more; ++i) {
      for (std::size_t k = begin; k < begin + kinds; ++k) out.push_back(Later(lane[k], i));
    }
    const auto left_out = static_cast<std::ptrdiff_t>(kinds) * std::max(0, -more);
    std::transform(run + left_out, lane.end(), std::back_inserter(out),
                   [more](const Action& action) { return Later(action, more); });
  }
  return longer;
}

}  // namespace penstock
