#include "schedule/text/lost_header.h"

#include <algorithm>
#include <vector>

#include "base/index.h"

namespace penstock {
namespace {

// The microbatch indices of each stage's backwards, in the order in which they run.
std::vector<std::vector<int>> BackwardsOf(const Schedule& schedule) {
  std::vector<std::vector<int>> backwards(Index(schedule.stages()));
  for (const Lane& lane : schedule.lanes) {
    for (const Action& action : lane) {
      ForEachPart(action, [&](const Part& part) {
        if (part.op != Op::kBackward && part.op != Op::kBackwardInput) return;
        backwards[part.stage].push_back(part.microbatch);
      });
    }
  }
  return backwards;
}

// Whether each index runs after the next one of its group.
bool RunsInReverse(const std::vector<int>& order, int group) {
  std::vector<bool> ran(order.size() + 1);
  for (const int index : order) {
    if (Index(index) >= order.size()) return false;
    if (index % group != group - 1 && !ran[Index(index) + 1]) return false;
    ran[Index(index)] = true;
  }
  return true;
}

}  // namespace

int SeemingSlices(const Schedule& schedule) {
  const std::vector<std::vector<int>> backwards = BackwardsOf(schedule);
  const int indices = schedule.indices();
  const auto fits = [&](int group) {
    return std::ranges::all_of(backwards, [&](const std::vector<int>& order) {
      return std::ssize(order) == indices && RunsInReverse(order, group);
    });
  };
  if (indices < 2 || fits(indices)) return 1;
  for (int group = indices / 2; group > 1; --group) {
    if (indices % group == 0 && fits(group)) return group;
  }
  return 1;
}

}  // namespace penstock
