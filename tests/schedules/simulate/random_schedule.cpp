#include "tests/schedules/simulate/random_schedule.h"

#include <algorithm>
#include <vector>

#include "schedule/deps.h"

namespace penstock {
namespace {

int Draw(std::mt19937& random, int low, int high) {
  return std::uniform_int_distribution<int>(low, high)(random);
}

// The actions that have run so far, by stage and microbatch.
struct Progress {
  bool forward = false, backward = false, weight = false;
  bool split = false;  // backward as I and W
  bool sent_forward = false, sent_backward = false;
  bool posted_forward = false, posted_backward = false;  // RECVs
};

class Drawer {
 public:
  Drawer(const RandomShape& shape, std::mt19937& random) : shape_(shape), random_(random) {
    schedule_.algorithm = "random";
    schedule_.placement = shape.placement;
    schedule_.microbatches = shape.microbatches;
    schedule_.slices = shape.slices;
    schedule_.lanes.resize(schedule_.ranks());
    progress_.resize(schedule_.stages() * schedule_.indices());
    for (Progress& progress : progress_) progress.split = Draw(random, 0, 1) == 1;
  }

  Schedule Run() {
    for (std::vector<Action> ready = Ready(); !ready.empty(); ready = Ready()) {
      const Action action = ready[Draw(random_, 0, static_cast<int>(ready.size()) - 1)];
      ForEachPart(action, [&](const Part& part) { Mark(part); });
      schedule_.lanes[schedule_.placement.rank_of(action.first.stage)].push_back(action);
    }
    return schedule_;
  }

 private:
  Progress& At(int stage, int microbatch) {
    return progress_[stage * schedule_.indices() + microbatch];
  }

  bool Crosses(int from, int to) const {
    return to >= 0 && schedule_.placement.rank_of(from) != schedule_.placement.rank_of(to);
  }

  // Whether all inputs of the part are computed, and, with communication actions, their receives
  // are posted.
  bool CanRun(const Part& part) {
    bool can = true;
    ForEachDependency(ChainShape::Of(schedule_), part, [&](const Value& value) {
      const Progress& made = At(value.stage, value.microbatch);
      const bool gradient = value.kind == ValueKind::kGradient;
      can = can && (gradient ? made.backward : made.forward);
      if (shape_.communication && Crosses(value.stage, part.stage)) {
        const Progress& own = At(part.stage, part.microbatch);
        can = can && (gradient ? made.sent_backward && own.posted_backward
                               : made.sent_forward && own.posted_forward);
      }
    });
    return can;
  }

  void Offer(std::vector<Action>& ready, const Action& action, bool wanted) {
    if (wanted && CanRun(action.first)) ready.push_back(action);
  }

  void OfferCommunication(std::vector<Action>& ready, int stage, int microbatch) {
    const Progress& done = At(stage, microbatch);
    const bool next = Crosses(stage, schedule_.placement.next(stage));
    const bool previous = Crosses(stage, schedule_.placement.previous(stage));
    const auto offer = [&](Op op, bool wanted) {
      if (wanted) ready.push_back(MakeAction(op, stage, microbatch));
    };
    offer(Op::kSendForward, next && done.forward && !done.sent_forward);
    offer(Op::kSendBackward, previous && done.backward && !done.sent_backward);
    offer(Op::kRecvForward, previous && !done.posted_forward);
    offer(Op::kRecvBackward, next && !done.posted_backward);
  }

  std::vector<Action> Ready() {
    std::vector<Action> ready;
    for (int stage = 0; stage < schedule_.stages(); ++stage) {
      for (int microbatch = 0; microbatch < schedule_.indices(); ++microbatch) {
        const Progress& done = At(stage, microbatch);
        Offer(ready, Forward(stage, microbatch), !done.forward);
        Offer(ready, done.split ? BackwardInput(stage, microbatch) : Backward(stage, microbatch),
              done.forward && !done.backward);
        Offer(ready, BackwardWeight(stage, microbatch),
              done.split && done.backward && !done.weight);
        if (shape_.communication) OfferCommunication(ready, stage, microbatch);
      }
    }
    if (shape_.pairs) OfferPairs(ready);
    return ready;
  }

  void OfferPairs(std::vector<Action>& ready) {
    const std::vector<Action> single = ready;
    for (const Action& f : single) {
      if (f.first.op != Op::kForward) continue;
      for (const Action& b : single) {
        if (!IsCompute(b) || b.first.op == Op::kForward) continue;
        if (schedule_.placement.rank_of(f.first.stage) !=
            schedule_.placement.rank_of(b.first.stage)) {
          continue;
        }
        ready.push_back(Draw(random_, 0, 1) == 0 ? Overlap(f, b) : Overlap(b, f));
      }
    }
  }

  void Mark(const Part& part) {
    Progress& done = At(part.stage, part.microbatch);
    done.forward = done.forward || part.op == Op::kForward;
    done.backward = done.backward || MakesInputGradient(part.op);
    done.weight = done.weight || part.op == Op::kBackwardWeight;
    done.sent_forward = done.sent_forward || part.op == Op::kSendForward;
    done.sent_backward = done.sent_backward || part.op == Op::kSendBackward;
    done.posted_forward = done.posted_forward || part.op == Op::kRecvForward;
    done.posted_backward = done.posted_backward || part.op == Op::kRecvBackward;
  }

  const RandomShape& shape_;
  std::mt19937& random_;
  Schedule schedule_;
  std::vector<Progress> progress_;
};

}  // namespace

Schedule RandomSchedule(const RandomShape& shape, std::mt19937& random) {
  return Drawer(shape, random).Run();
}

Placement RandomPlacement(std::mt19937& random) {
  const int ranks = Draw(random, 1, 4);
  const int replicas = Draw(random, 1, 2);
  int stages = ranks + Draw(random, 0, 3);
  stages += stages % replicas;
  std::vector<int> rank_of_stage;
  for (int stage = 0; stage < stages; ++stage) {
    rank_of_stage.push_back(stage < ranks ? stage : Draw(random, 0, ranks - 1));
  }
  std::shuffle(rank_of_stage.begin(), rank_of_stage.end(), random);
  return Placement::FromRanks(rank_of_stage, ranks, replicas).value();
}

Costs RandomCosts(const Placement& placement, std::mt19937& random) {
  std::uniform_real_distribution<double> time(0, 3);
  const auto draw = [&] { return Draw(random, 0, 9) == 0 ? 0.0 : time(random); };
  Costs costs;
  // Sums of quarters are exact in any order.
  const double activation = Draw(random, 1, 8) * 0.25;
  const double share = Draw(random, 0, 4) * 0.25;
  for (int stage = 0; stage < placement.stages(); ++stage) {
    costs.stages.push_back({draw(), draw(), draw(), activation, activation * share});
  }
  costs.comm = Draw(random, 0, 2) == 0 ? 0 : time(random);
  if (Draw(random, 0, 1) == 1) costs.overlap.kind = OverlapRule::Kind::kSum;
  return costs;
}

}  // namespace penstock
