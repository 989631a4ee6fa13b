// ZB-H1: 1F1B with the backward split. Weight gradients wait, and fill the drain.
//
//   rank 0 of 4, m = 4   F0 F1 F2 F3 I0 W0 I1 W1 I2 W2 I3 W3
//   rank 3 of 4          F0 I0 F1 I1 F2 I2 F3 I3 W0 W1 W2 W3
//
// Rank r runs 1F1B's warm-up, then F, I and W in turn, with W delayed by r turns, so that every
// rank needs the memory of 1F1B's rank 0. With unequal times, W is delayed by the number of turns
// that gives the shortest schedule, at most r. For F = I = W = 1: makespan 3m + p - 1 (2m + 2p - 1
// for m <= p), a third of 1F1B's bubble; peak memory p, as 1F1B.
// Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024, section 2.2 (ZB-H1).
#include "schedule/algorithms/algorithms.h"
#include "schedule/algorithms/split_turns.h"
#include "schedule/search/problem/problem.h"
#include "schedule/search/squeeze.h"

namespace penstock {
namespace {

// By rank: the number of turns by which W is delayed.
using Delays = std::vector<int>;

// The work of choosing the delays, in actions priced.
constexpr double kTurnBudget = 1e6;

int WarmUpForwards(const ScheduleParams& params, int rank) {
  return std::min(params.microbatches, params.ranks - 1 - rank);
}

// A longer delay would exceed the memory of rank 0, or leave no forward to run first.
int MostDelay(const ScheduleParams& params, int rank) {
  return std::min(rank, params.microbatches - WarmUpForwards(params, rank));
}

std::vector<Lane> LanesWith(const ScheduleParams& params, const Delays& delays) {
  std::vector<Lane> lanes;
  for (int rank = 0; rank < params.ranks; ++rank) {
    const int delay = delays[rank];
    lanes.push_back(WarmUpThenSplitTurns(
        {params.microbatches, WarmUpForwards(params, rank), delay},
        [rank, n = 0]() mutable { return Forward(rank, n++); },
        [rank, n = 0]() mutable { return BackwardInput(rank, n++); },
        [rank, n = 0]() mutable { return BackwardWeight(rank, n++); }));
  }
  return lanes;
}

// Finds the delays with the shortest schedule for the real costs: among all if there are few, else
// among some families, followed by changes of one rank at a time.
class DelaySearch {
 public:
  DelaySearch(const ScheduleParams& params, const Placement& placement, const Costs& costs)
      : params_(params),
        squeezer_({placement, costs, params.microbatches, 1, true, kNever}),
        tries_left_(kTurnBudget / (3.0 * params.ranks * params.microbatches)) {
    in_order_.window = 1;
    for (int rank = 0; rank < params.ranks; ++rank) best_.push_back(MostDelay(params, rank));
  }

  Delays Run() {
    if (tries_left_ < 2) return best_;
    Try(Delays(best_));
    double all = 1;
    for (const int most : best_) all *= most + 1;
    if (all <= tries_left_) {
      TryAll();
    } else {
      TryFamilies();
      ChangeOneByOne();
    }
    return best_;
  }

 private:
  bool Try(const Delays& delays) {
    --tries_left_;
    const double makespan = squeezer_.Run(LanesWith(params_, delays), in_order_);
    if (makespan >= makespan_ * (1 - kRounding)) return false;
    makespan_ = makespan;
    best_ = delays;
    return true;
  }

  // Enumerates all delays like an odometer.
  void TryAll() {
    Delays delays(best_.size());
    for (;;) {
      Try(delays);
      std::size_t rank = 0;
      while (rank < delays.size() && delays[rank] == MostDelay(params_, static_cast<int>(rank))) {
        delays[rank++] = 0;
      }
      if (rank == delays.size()) return;
      ++delays[rank];
    }
  }

  // Tries delays that are `less` below the largest on every rank, and delays capped at `less`.
  void TryFamilies() {
    const int step = std::max(1, static_cast<int>(4 * params_.ranks / tries_left_));
    for (int less = 0; less < params_.ranks && tries_left_ > 0; less += step) {
      Delays lower, capped;
      for (int rank = 0; rank < params_.ranks; ++rank) {
        lower.push_back(std::max(0, MostDelay(params_, rank) - less));
        capped.push_back(std::min(MostDelay(params_, rank), less));
      }
      Try(lower);
      Try(capped);
    }
  }

  void ChangeOneByOne() {
    for (bool helped = true; helped;) {
      helped = false;
      for (int rank = 1; rank < params_.ranks; ++rank) {
        for (int delay = 0; delay <= MostDelay(params_, rank); ++delay) {
          if (tries_left_ <= 0) return;
          Delays delays = best_;
          delays[rank] = delay;
          helped = Try(delays) || helped;
        }
      }
    }
  }

  const ScheduleParams& params_;
  Squeezer squeezer_;
  SqueezeOptions in_order_;
  double tries_left_;
  double makespan_ = kNever;
  Delays best_;  // initially the rule's, which are the largest
};

Schedule GenerateZbH1(const ScheduleParams& params) {
  Schedule schedule = EmptySchedule(Placement::Linear(params.ranks), params);
  Delays delays;
  if (EqualTimes(params)) {
    for (int rank = 0; rank < params.ranks; ++rank) delays.push_back(MostDelay(params, rank));
  } else {
    const Costs costs = CostsOf(params, schedule.placement);
    delays = DelaySearch(params, schedule.placement, costs).Run();
  }
  schedule.lanes = LanesWith(params, delays);
  return schedule;
}

ClosedForm ZeroBubbleFigures(const ScheduleParams& params) {
  const int p = params.ranks, m = params.microbatches;
  ClosedForm form;
  form.peak_memory = std::min(m, p);
  if (EqualTimes(params)) {
    form.makespan = (m > p ? 3.0 * m + p - 1 : 2.0 * m + 2.0 * p - 1) * params.forward;
  }
  return form;
}

}  // namespace

Algorithm ZbH1() {
  Algorithm algorithm;
  algorithm.name = "zb-h1";
  algorithm.aliases = {"zb1p", "zero-bubble"};
  algorithm.summary = "1f1b with split backwards: a third of the bubble, the same memory";
  algorithm.when =
      "In place of 1f1b if the backward can be split into I and W: a third of the bubble, with the "
      "same memory and the same messages.";
  algorithm.placement = PlacementForm::kLinear;
  algorithm.makespan = "3m+p-1; 2m+2p-1 for m <= p";
  algorithm.memory = "min(m, p)";
  algorithm.source = "Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024, section 2.2";
  algorithm.generate = GenerateZbH1;
  algorithm.closed_form = ZeroBubbleFigures;
  return algorithm;
}

}  // namespace penstock
