// Squeezing by insertion.
#include <algorithm>

#include "base/index.h"
#include "schedule/search/squeeze.h"

namespace penstock {

void Squeezer::RunByInsertion() {
  placed_.resize(ranks_.size());
  for (Stage& stage : stages_) std::fill_n(stage.last_end, kKinds, 0.0);
  std::vector<int> awake;
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    placed_[r].clear();
    placed_[r].reserve((*in_)[r].size());
    awake.push_back(static_cast<int>(r));
  }
  while (!awake.empty()) {
    const int rank = awake.back();
    awake.pop_back();
    InsertReady(rank, awake);
  }
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    const Lane& lane = (*in_)[r];
    if (ranks_[r].head < lane.size()) return;
    // No other action needs the memory that these free.
    for (std::size_t k = 0; k < lane.size(); ++k) {
      if (has_run_[r][k] == 0) Insert(static_cast<int>(r), At(static_cast<int>(r), k));
    }
    for (const Placed& placed : placed_[r]) out_[r].push_back(placed.action);
  }
}

// Places the next actions of the lane, up to the first that waits for one that is not placed yet.
void Squeezer::InsertReady(int r, std::vector<int>& awake) {
  Rank& rank = ranks_[r];
  auto& has_run = has_run_[r];
  if (rank.head == 0 && options_.weights_last != SqueezeOptions::WeightsLast::kNever) {
    rank.drain = has_run.size();
    while (rank.drain > 0 && KindOf(At(r, rank.drain - 1).first.op) != kF) --rank.drain;
  }
  for (; rank.head < has_run.size(); ++rank.head) {
    const Action& action = At(r, rank.head);
    const Kind kind = KindOf(action.first.op);
    if (kind == kW && rank.head >= rank.drain && !from_end_) continue;
    if (Arrival(action.first) == kNever) return;
    Insert(r, action);
    has_run[rank.head] = 1;
    const Stage& stage = stages_[action.first.stage];
    // The stages that wait for it, in the direction of the run.
    if (!stage.is_first) awake.push_back(stages_[action.first.stage - 1U].rank);
    if (!stage.is_last) awake.push_back(stages_[action.first.stage + 1U].rank);
  }
}

// Inserts the action into the earliest gap that is long enough and leaves enough memory for later
// actions.
void Squeezer::Insert(int r, const Action& action) {
  const Part& part = action.first;
  Stage& stage = stages_[part.stage];
  const Kind kind = KindOf(part.op);
  std::vector<Placed>& placed = placed_[r];
  const double duration = stage.duration[kind];
  const double arrival = std::max(Arrival(part), stage.last_end[kind]);
  const double more = stage.taken[kind] - stage.given[kind];
  const auto given = [&](const Placed& other) {
    return stages_[other.action.first.stage].given[KindOf(other.action.first.op)];
  };

  std::size_t best = placed.size();
  double start = std::max(arrival, placed.empty() ? 0 : placed.back().end);
  double held =
      (placed.empty() ? 0 : placed.back().held - given(placed.back())) + stage.taken[kind];
  for (std::size_t k = placed.size(); k > 0;) {
    const Placed& later = placed[--k];
    if (later.start < arrival + duration - slack_ || later.end <= arrival + slack_) break;
    if (more > 0 && later.held + more > memory_limit_) break;
    const double gap = std::max(arrival, k == 0 ? 0 : placed[k - 1].end);
    if (gap + duration > later.start + slack_) continue;
    const double holds =
        (k == 0 ? 0 : placed[k - 1].held - given(placed[k - 1])) + stage.taken[kind];
    if (holds > memory_limit_) continue;
    best = k;
    start = gap;
    held = holds;
  }
  for (std::size_t k = best; k < placed.size(); ++k) placed[k].held += more;
  const double end = start + duration;
  placed.insert(placed.begin() + static_cast<std::ptrdiff_t>(best), {action, start, end, held});
  stage.last_end[kind] = end;
  peak_memory_ = std::max(peak_memory_, held);
  makespan_ = std::max(makespan_, end);
  const std::size_t indices = problem_.indices;
  ends_[kind][part.stage * indices + Index(part.microbatch)] = end;
}

}  // namespace penstock
