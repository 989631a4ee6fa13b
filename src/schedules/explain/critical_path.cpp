#include "explain/critical_path.h"

#include <algorithm>

#include "base/index.h"
#include "simulate/summary.h"

namespace penstock {
namespace {

// The position before `position` of an action that occupies the rank; -1 if there is none.
int Previous(const Lane& lane, int position) {
  do {
    --position;
  } while (position >= 0 && !OccupiesRank(lane[Index(position)].first.op));
  return position;
}

bool IsCollective(Op op) { return op == Op::kUnshard || op == Op::kReduceGrad; }

// The position before `position` of a transfer on the same link of the rank; -1 if there is none.
int PreviousOnLink(const Lane& lane, int position) {
  const Op op = lane[Index(position)].first.op;
  if (OccupiesRank(op) || !HasDuration(op) || IsWait(op)) return -1;
  do {
    --position;
  } while (position >= 0 && lane[Index(position)].first.op != op &&
           !(IsCollective(op) && IsCollective(lane[Index(position)].first.op)));
  return position;
}

ActionAt LastOfAll(const Schedule& schedule, const Timeline& timeline) {
  ActionAt last;
  double end = -1;
  for (int rank = 0; rank < schedule.ranks(); ++rank) {
    const Lane& lane = schedule.lanes[Index(rank)];
    for (std::size_t i = 0; i < lane.size(); ++i) {
      const double own = timeline.spans[Index(rank)][i].end;
      if (!HasDuration(lane[i].first.op) || own <= end) continue;
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
    ActionAt before = previous < 0 ? ActionAt{} : ActionAt{at.rank, previous};
    const int on_link = PreviousOnLink(schedule.lanes[Index(at.rank)], at.position);
    const ActionAt transfer{at.rank, on_link};
    if (on_link >= 0 &&
        (!before.known() || inputs.TimeOf(transfer).end > inputs.TimeOf(before).end)) {
      before = transfer;
    }
    const bool on_rank =
        before.known() && (!input.from.known() || inputs.TimeOf(before).end >= input.ready);
    const ActionAt next = on_rank ? before : input.from;
    // Measured times may contradict the dependencies; a path never goes forward in time. But what a
    // wait waits for may start after it.
    const Span& time = inputs.TimeOf(at);
    const double latest = IsWait(inputs.ActionOf(at).first.op) ? time.end : time.start;
    if (next.known() && inputs.TimeOf(next).start > latest) break;
    at = next;
  }
  std::ranges::reverse(path);
  return path;
}

}  // namespace penstock
