#include "tests/engine/runtime/random_schedule.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "base/index.h"
#include "schedule/deps.h"

namespace penstock {
namespace {

class Generator {
 public:
  Generator(Random& random, Schedule schedule, bool pairs)
      : random_(random), schedule_(std::move(schedule)), pairs_(pairs) {
    schedule_.lanes.resize(schedule_.ranks());
    for (int stage = 0; stage < schedule_.stages(); ++stage) {
      for (int microbatch = 0; microbatch < schedule_.indices(); ++microbatch) {
        pending_.push_back(Forward(stage, microbatch).first);
        if (Uniform(random_, 0, 1) == 0) {
          pending_.push_back(Backward(stage, microbatch).first);
        } else {
          pending_.push_back(BackwardInput(stage, microbatch).first);
          pending_.push_back(BackwardWeight(stage, microbatch).first);
        }
      }
    }
  }

  Schedule Make() {
    while (!pending_.empty()) {
      const Part part = TakeReady([](const Part&) { return true; }).front();
      Action action{part, {}};
      if (pairs_ && Uniform(random_, 0, 2) == 0 && IsPairable(part)) action.second = Partner(part);
      schedule_.lanes[Rank(part)].push_back(action);
      ForEachPart(action, [this](const Part& done) { Finish(done); });
    }
    return schedule_;
  }

 private:
  std::size_t Rank(const Part& part) const {
    return Index(schedule_.placement.rank_of(part.stage));
  }

  static bool IsPairable(const Part& part) {
    return part.op == Op::kForward || part.op == Op::kBackward;
  }

  bool IsReady(const Part& part) const {
    bool ready = true;
    ForEachDependency(ChainShape::Of(schedule_), part, [&](const Value& value) {
      ready = ready && done_.count({value.kind, value.stage, value.microbatch}) > 0;
    });
    return ready;
  }

  void Finish(const Part& part) {
    if (part.op != Op::kBackwardWeight) {
      done_.insert({MadeBy(part.op), part.stage, part.microbatch});
    }
  }

  // Removes and returns the first ready part that fits, searching from a random position. Returns
  // an empty vector if there is none.
  template <class Fits>
  std::vector<Part> TakeReady(Fits&& fits) {
    const std::size_t offset = random_() % pending_.size();
    for (std::size_t i = 0; i < pending_.size(); ++i) {
      const auto at = static_cast<std::ptrdiff_t>((offset + i) % pending_.size());
      const Part part = pending_[at];
      if (!fits(part) || !IsReady(part)) continue;
      pending_.erase(pending_.begin() + at);
      return {part};
    }
    return {};
  }

  // Removes and returns a ready part that can be paired with `part`; an empty part if there is
  // none.
  Part Partner(const Part& part) {
    const Op wanted = part.op == Op::kForward ? Op::kBackward : Op::kForward;
    if (pending_.empty()) return {};
    const std::vector<Part> found = TakeReady(
        [&](const Part& other) { return other.op == wanted && Rank(other) == Rank(part); });
    return found.empty() ? Part{} : found.front();
  }

  Random& random_;
  Schedule schedule_;
  bool pairs_;
  std::vector<Part> pending_;
  std::set<std::tuple<ValueKind, int, int>> done_;
};

}  // namespace

Schedule RandomSchedule(Random& random, const RandomScheduleOptions& options) {
  Schedule schedule;
  schedule.algorithm = "random";
  const int ranks = Uniform(random, 1, options.max_ranks);
  const int replicas = Uniform(random, 0, 3) == 0 ? 2 : 1;
  const int chain = Uniform(random, ranks, ranks * options.max_stages_per_rank);
  std::vector<int> rank_of_stage;
  for (int stage = 0; stage < chain * replicas; ++stage) {
    rank_of_stage.push_back(stage < ranks ? stage : Uniform(random, 0, ranks - 1));
  }
  std::shuffle(rank_of_stage.begin(), rank_of_stage.end(), random);
  schedule.placement = Placement::FromRanks(rank_of_stage, ranks, replicas).value();
  schedule.microbatches = replicas * Uniform(random, 1, options.max_microbatches);
  schedule.slices = Uniform(random, 0, 3) == 0 ? Uniform(random, 2, 3) : 1;
  return Generator(random, std::move(schedule), options.pairs).Make();
}

Schedule SmallGpipe(int ranks, int microbatches) {
  Schedule schedule;
  schedule.algorithm = "gpipe";
  schedule.placement = Placement::Linear(ranks);
  schedule.microbatches = microbatches;
  for (int rank = 0; rank < ranks; ++rank) {
    Lane lane;
    for (int microbatch = 0; microbatch < microbatches; ++microbatch)
      lane.push_back(Forward(rank, microbatch));
    for (int microbatch = microbatches - 1; microbatch >= 0; --microbatch)
      lane.push_back(Backward(rank, microbatch));
    schedule.lanes.push_back(std::move(lane));
  }
  return schedule;
}

}  // namespace penstock
