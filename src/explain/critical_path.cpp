#include "explain/critical_path.h"

#include <algorithm>

#include "base/index.h"

namespace penstock {
namespace {

// The position before `position` of an action that occupies the rank; -1 if there is none.
int Previous(const Lane& lane, int position) {
  do {
    --position;
  } while (position >= 0 && !OccupiesRank(lane[Index(position)].first.op));
  return position;
}

ActionAt LastOfAll(const Schedule& schedule, const Timeline& timeline) {
  ActionAt last;
  double end = -1;
  for (int rank = 0; rank < schedule.ranks(); ++rank) {
    const Lane& lane = schedule.lanes[Index(rank)];
    for (std::size_t i = 0; i < lane.size(); ++i) {
      const double own = timeline.spans[Index(rank)][i].end;
      if (!OccupiesRank(lane[i].first.op) || own <= end) continue;
      end = own;
      last = {rank, static_cast<int>(i)};
    }
  }
  return last;
}

}  // namespace

std::vector<ActionAt> CriticalPath(const Schedule& schedule, const Timeline& timeline,
                                   const ActionInputs& inputs) {
  std::vector<ActionAt> path;
  for (ActionAt at = LastOfAll(schedule, timeline); at.known();) {
    path.push_back(at);
    const ActionInput input = inputs.LastOf(at);
    const int previous = Previous(schedule.lanes[Index(at.rank)], at.position);
    const ActionAt before = previous < 0 ? ActionAt{} : ActionAt{at.rank, previous};
    const bool on_rank =
        before.known() && (!input.from.known() || inputs.TimeOf(before).end >= input.ready);
    const ActionAt next = on_rank ? before : input.from;
    // Measured times may contradict the dependencies; a path never goes forward in time.
    if (next.known() && inputs.TimeOf(next).start > inputs.TimeOf(at).start) break;
    at = next;
  }
  std::ranges::reverse(path);
  return path;
}

}  // namespace penstock
