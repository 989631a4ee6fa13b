#include "explain/bubbles.h"

#include <algorithm>
#include <limits>

#include "base/index.h"
#include "simulate/memory/memory_over_time.h"
#include "simulate/summary.h"

namespace penstock {
namespace {

constexpr double kInsignificant = 1e-9;  // of the timeline

// Forwards that a rank could have run earlier.
class ReadyForwards {
 public:
  ReadyForwards(const Schedule& schedule, const Timeline& timeline, const ActionInputs& inputs,
                const MemoryBound& bound, int rank)
      : lane_(schedule.lanes[Index(rank)]),
        inputs_(inputs),
        bound_(bound),
        memory_(MemoryOverTime(schedule, timeline, bound.costs, rank)),
        rank_(rank) {}

  // Returns from when in [start, end] the next forward after `position` was ready, but did not fit.
  // Calls must be in order of time.
  double WaitsForMemoryFrom(std::size_t position, double start, double end) {
    next_ = std::max(next_, position);
    while (next_ < lane_.size() && lane_[next_].first.op != Op::kForward) ++next_;
    if (next_ == lane_.size() || next_ == position) return end;
    const ActionAt at{rank_, static_cast<int>(next_)};
    const double ready = std::max(inputs_.LastOf(at).ready, start);
    if (ready >= end) return end;
    const double needed = bound_.costs.Of(lane_[next_].first).activation;
    return HeldAt(start) + needed > bound_.limit * (1 + kInsignificant) ? ready : end;
  }

 private:
  double HeldAt(double time) const {
    const auto after = std::ranges::upper_bound(memory_, time, {}, &MemoryPoint::time);
    return after == memory_.begin() ? 0 : std::prev(after)->amount;
  }

  const Lane& lane_;
  const ActionInputs& inputs_;
  const MemoryBound& bound_;
  const MemoryCurve memory_;
  const int rank_;
  std::size_t next_ = 0;
};

// The bubbles of one rank.
class RankBubbles {
 public:
  RankBubbles(const Schedule& schedule, const Timeline& timeline, const ActionInputs& inputs,
              const std::optional<MemoryBound>& bound, int rank, double end)
      : lane_(schedule.lanes[Index(rank)]),
        spans_(timeline.spans[Index(rank)]),
        inputs_(inputs),
        rank_(rank),
        end_(end) {
    if (bound) ready_.emplace(schedule, timeline, inputs, *bound, rank);
    for (std::size_t i = 0; i < lane_.size(); ++i) {
      ForEachPart(lane_[i], [&](const Part& part) {
        if (part.op == Op::kForward) last_forward_ = i;
        if (MakesInputGradient(part.op)) first_backward_ = std::min(first_backward_, i);
      });
    }
  }

  std::vector<Bubble> Find() {
    double free = 0;
    for (std::size_t i = 0; i < lane_.size(); ++i) {
      if (!OccupiesRank(lane_[i].first.op)) continue;
      AddGap(i, free);
      free = std::max(free, spans_[i].end);
    }
    AddEnd(free);
    return std::move(bubbles_);
  }

 private:
  void Add(const Bubble& bubble) {
    if (bubble.end - bubble.start > kInsignificant * end_) bubbles_.push_back(bubble);
  }

  // Adds the time after the last action that occupies the rank: first its last transfer.
  void AddEnd(double free) {
    ActionAt transfer;
    double done = free;
    for (std::size_t i = 0; i < lane_.size(); ++i) {
      const Op op = lane_[i].first.op;
      if (OccupiesRank(op) || !HasDuration(op) || spans_[i].end <= done) continue;
      transfer = {rank_, static_cast<int>(i)};
      done = spans_[i].end;
    }
    Add({free, done, BubbleCause::kTransfer, {}, transfer});
    Add({done, end_, BubbleCause::kDrain, {}, {}});
  }

  // Adds the gap before an action: first the time until its last input is computed, then the time
  // until that is there.
  void AddGap(std::size_t position, double free) {
    const double start = spans_[position].start;
    if (start - free <= kInsignificant * end_) return;
    const ActionAt at{rank_, static_cast<int>(position)};
    const ActionInput input = inputs_.LastOf(at);
    const double computed = std::clamp(input.from.known() ? input.computed : start, free, start);
    AddWait(position, {free, computed, CauseOf(position, input.from), at, input.from});
    const auto cause = input.sent ? BubbleCause::kCommunication : CauseOf(position, input.from);
    Add({computed, start, cause, at, input.from});
  }
  // Divides a wait at the time from which only memory keeps the rank from a forward.
  void AddWait(std::size_t position, const Bubble& wait) {
    const bool may_lack_memory = ready_ && wait.end > wait.start;
    const double full =
        may_lack_memory ? ready_->WaitsForMemoryFrom(position, wait.start, wait.end) : wait.end;
    Add({wait.start, full, wait.cause, wait.before, wait.waits_for});
    Add({full, wait.end, BubbleCause::kMemoryLimit, wait.before, wait.waits_for});
  }

  BubbleCause CauseOf(std::size_t position, const ActionAt& from) const {
    if (from.known() && from.rank == rank_ && !OccupiesRank(inputs_.ActionOf(from).first.op)) {
      return BubbleCause::kTransfer;
    }
    if (position <= first_backward_) return BubbleCause::kWarmUp;
    if (position > last_forward_) return BubbleCause::kDrain;
    return BubbleCause::kImbalance;
  }

  const Lane& lane_;
  const std::vector<Span>& spans_;
  const ActionInputs& inputs_;
  const int rank_;
  const double end_;
  std::optional<ReadyForwards> ready_;
  std::size_t first_backward_ = std::numeric_limits<std::size_t>::max();
  std::size_t last_forward_ = 0;
  std::vector<Bubble> bubbles_;
};

}  // namespace

std::string_view NameOf(BubbleCause cause) {
  constexpr std::array<std::string_view, kBubbleCauses> kNames = {
      "warm-up", "drain", "communication", "transfer", "imbalance", "memory limit"};
  return kNames[Index(cause)];
}

std::vector<std::vector<Bubble>> FindBubbles(const Schedule& schedule, const Timeline& timeline,
                                             const ActionInputs& inputs,
                                             const std::optional<MemoryBound>& bound) {
  double end = 0;
  for (std::size_t rank = 0; rank < schedule.lanes.size(); ++rank) {
    for (std::size_t i = 0; i < schedule.lanes[rank].size(); ++i) {
      const bool counts = HasDuration(schedule.lanes[rank][i].first.op);
      if (counts) end = std::max(end, timeline.spans[rank][i].end);
    }
  }
  std::vector<std::vector<Bubble>> bubbles;
  for (int rank = 0; rank < schedule.ranks(); ++rank) {
    bubbles.push_back(RankBubbles(schedule, timeline, inputs, bound, rank, end).Find());
  }
  return bubbles;
}

TimeByCause TotalsOf(const std::vector<Bubble>& bubbles) {
  TimeByCause totals{};
  for (const Bubble& bubble : bubbles) totals[Index(bubble.cause)] += bubble.end - bubble.start;
  return totals;
}

TimeByCause TotalsOf(const std::vector<std::vector<Bubble>>& by_rank) {
  TimeByCause totals{};
  for (const std::vector<Bubble>& bubbles : by_rank) {
    const TimeByCause own = TotalsOf(bubbles);
    for (std::size_t cause = 0; cause < own.size(); ++cause) totals[cause] += own[cause];
  }
  return totals;
}

}  // namespace penstock
