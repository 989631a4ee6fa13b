#include "schedule/search/problem/price_lanes.h"

#include <array>

#include "base/index.h"
#include "schedule/deps.h"

namespace penstock {
namespace {

// Runs each lane as far as it goes, and again when the value that its rank waits for arrives.
class LaneRun {
 public:
  LaneRun(const Problem& problem, const std::vector<Lane>& lanes)
      : problem_(problem),
        lanes_(lanes),
        shape_{problem.placement.chain_length(), problem.slices},
        indices_(problem.indices),
        ranks_(lanes.size()) {
    const auto values = Index(problem.placement.stages()) * indices_;
    for (auto& ends : ends_) ends.assign(values, kNever);
    for (int rank = problem.placement.ranks() - 1; rank >= 0; --rank) runnable_.push_back(rank);
  }

  LanePrice Run() {
    while (!runnable_.empty()) {
      const int rank = runnable_.back();
      runnable_.pop_back();
      RunLane(rank);
    }
    LanePrice price{0, 0, PeakMemory(problem_, lanes_)};
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      if (ranks_[r].position < lanes_[r].size()) return {};
      price.makespan = std::max(price.makespan, ranks_[r].clock);
      price.longest_span = std::max(price.longest_span, ranks_[r].clock - ranks_[r].first_start);
    }
    return price;
  }

 private:
  struct Rank {
    std::size_t position = 0;
    double clock = 0;
    double first_start = 0;
    const double* waits_for = nullptr;  // the end of another rank's action
  };

  double& EndOf(ValueKind kind, int stage, int microbatch) {
    return ends_[Index(kind)][Index(stage) * indices_ + Index(microbatch)];
  }

  void RunLane(int r) {
    Rank& rank = ranks_[r];
    const Lane& lane = lanes_[r];
    for (; rank.position < lane.size(); ++rank.position) {
      const Part& part = lane[rank.position].first;
      double start = rank.clock;
      const double* missing = nullptr;
      ForEachDependency(shape_, part, [&](const Value& value) {
        const double& end = EndOf(value.kind, value.stage, value.microbatch);
        if (end == kNever && missing == nullptr) missing = &end;
        const int from = problem_.placement.rank_of(value.stage);
        start = std::max(start, end + problem_.costs.Comm(from, r));
      });
      rank.waits_for = missing;
      if (missing != nullptr) return;
      if (rank.position == 0) rank.first_start = start;
      rank.clock = start + problem_.costs.Duration(part);
      if (part.op != Op::kBackwardWeight) Publish(part, rank.clock);
    }
  }

  void Publish(const Part& part, double end) {
    const ValueKind kind = MadeBy(part.op);
    double& published = EndOf(kind, part.stage, part.microbatch);
    published = end;
    const int reader = kind == ValueKind::kActivation ? problem_.placement.next(part.stage)
                                                      : problem_.placement.previous(part.stage);
    if (reader < 0) return;
    const int other = problem_.placement.rank_of(reader);
    if (ranks_[other].waits_for == &published) runnable_.push_back(other);
  }

  const Problem& problem_;
  const std::vector<Lane>& lanes_;
  const ChainShape shape_;
  const std::size_t indices_;
  std::vector<Rank> ranks_;
  std::array<std::vector<double>, 2> ends_;  // by ValueKind, stage and microbatch
  std::vector<int> runnable_;
};

// Returns the memory that the action allocates; negative if it frees memory.
double Change(const Costs& costs, const Action& action) {
  const StageCosts& stage = costs.stages[action.first.stage];
  switch (action.first.op) {
    case Op::kForward:
      return stage.activation;
    case Op::kBackwardInput:
      return stage.activation_after_i - stage.activation;
    case Op::kBackwardWeight:
      return -stage.activation_after_i;
    default:
      return -stage.activation;
  }
}

}  // namespace

LanePrice PriceLanes(const Problem& problem, const std::vector<Lane>& lanes) {
  return LaneRun(problem, lanes).Run();
}

double PeakMemory(const Problem& problem, const std::vector<Lane>& lanes) {
  double peak = 0;
  for (const Lane& lane : lanes) {
    double held = 0;
    for (const Action& action : lane) {
      held += Change(problem.costs, action);
      peak = std::max(peak, held);
    }
  }
  return peak;
}

}  // namespace penstock
