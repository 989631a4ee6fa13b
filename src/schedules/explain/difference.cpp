#include "explain/difference.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "base/index.h"

namespace penstock {
namespace {

// One part of an action that occupies its rank.
struct Entry {
  Part part;
  int rank = 0;
  double start = 0;
  Part before;  // the entry that precedes it on its rank; its op is kNone for the first

  auto key() const { return std::tuple(part.op, part.stage, part.microbatch); }
};

std::vector<Entry> EntriesOf(const ExplainedRun& run) {
  std::vector<Entry> entries;
  for (int rank = 0; rank < run.schedule.ranks(); ++rank) {
    const Lane& lane = run.schedule.lanes[Index(rank)];
    Part before{Op::kNone, 0, -1};
    for (std::size_t i = 0; i < lane.size(); ++i) {
      if (!OccupiesRank(lane[i].first.op)) continue;
      const double start = run.timeline.spans[Index(rank)][i].start;
      ForEachPart(lane[i], [&](const Part& part) {
        entries.push_back({part, rank, start, before});
        before = part;
      });
    }
  }
  std::ranges::stable_sort(entries, {}, &Entry::key);
  return entries;
}

}  // namespace

TimeUse TimeUseOf(const ExplainedRun& run) {
  TimeUse use;
  const auto ranks = static_cast<double>(std::max(1, run.schedule.ranks()));
  for (std::size_t rank = 0; rank < run.schedule.lanes.size(); ++rank) {
    for (std::size_t i = 0; i < run.schedule.lanes[rank].size(); ++i) {
      const Action& action = run.schedule.lanes[rank][i];
      if (!OccupiesRank(action.first.op)) continue;
      const Span& span = run.timeline.spans[rank][i];
      const double share = (span.end - span.start) / ranks / (action.is_pair() ? 2 : 1);
      ForEachPart(action, [&](const Part& part) { use.by_op[Index(part.op)] += share; });
    }
  }
  use.bubbles = TotalsOf(run.bubbles);
  for (double& time : use.bubbles) time /= ranks;
  return use;
}

Difference Compare(const ExplainedRun& a, const ExplainedRun& b) {
  Difference difference{TimeUseOf(a), TimeUseOf(b), {}};
  const std::vector<Entry> of_a = EntriesOf(a), of_b = EntriesOf(b);
  for (std::size_t i = 0, j = 0; i < of_a.size() || j < of_b.size();) {
    const bool a_first = j == of_b.size() || (i < of_a.size() && of_a[i].key() < of_b[j].key());
    const bool b_first = i == of_a.size() || (j < of_b.size() && of_b[j].key() < of_a[i].key());
    if (a_first) {
      ++difference.only_a[Index(of_a[i++].part.op)];
    } else if (b_first) {
      ++difference.only_b[Index(of_b[j++].part.op)];
    } else {
      const Entry &from = of_a[i++], &to = of_b[j++];
      difference.common.push_back({from.part, from.rank, to.rank, from.start, to.start});
      if (from.rank != to.rank) ++difference.other_rank;
      if (from.before != to.before) ++difference.reordered;
    }
  }
  std::ranges::stable_sort(difference.common, std::greater<>(), [](const Moved& moved) {
    return std::abs(moved.start_b - moved.start_a);
  });
  return difference;
}

}  // namespace penstock
