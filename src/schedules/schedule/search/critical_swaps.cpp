#include "schedule/search/critical_swaps.h"

#include <algorithm>

#include "base/index.h"
#include "schedule/deps.h"

namespace penstock {
namespace {

struct Position {
  int rank = 0;
  std::size_t position = 0;
};

// Walks the critical path from its end.
class Walk {
 public:
  Walk(const Problem& problem, const Squeezer& run, const std::vector<Lane>& lanes)
      : problem_(problem), run_(run), lanes_(lanes) {
    const std::size_t cells = Index(problem.placement.stages()) * Index(problem.indices);
    for (auto& positions : positions_) positions.resize(cells);
    double latest = -1, longest = -1;
    for (std::size_t rank = 0; rank < lanes.size(); ++rank) {
      for (std::size_t k = 0; k < lanes[rank].size(); ++k) {
        const Part& part = lanes[rank][k].first;
        positions_[ListOf(part.op)][Cell(part.stage, part.microbatch)] = k;
      }
      if (lanes[rank].empty()) continue;
      const double end = run.EndOf(lanes[rank].back().first);
      const Part& first = lanes[rank].front().first;
      const double start = run.EndOf(first) - problem.costs.Duration(first);
      latest = std::max(latest, end);
      const double length = problem.objective == Objective::kSpan ? end - start : end;
      if (length <= longest) continue;
      longest = length;
      at_ = {static_cast<int>(rank), lanes[rank].size() - 1};
    }
    slack_ = latest * kRounding;
  }

  std::vector<Swap> Collect() {
    std::vector<Swap> swaps;
    for (;;) {
      const Part& part = Lane(at_.rank)[at_.position].first;
      const double arrival = run_.ArrivalOf(part);
      const double start = run_.EndOf(part) - problem_.costs.Duration(part);
      if (at_.position > 0) {
        const Part& before = Lane(at_.rank)[at_.position - 1].first;
        const double end_before = run_.EndOf(before);
        if (end_before >= start - slack_ && arrival < end_before - slack_) {
          swaps.push_back({at_.rank, at_.position - 1});
        }
        // It waits for the previous action, not for its inputs.
        if (arrival < start - slack_) {
          --at_.position;
          continue;
        }
      }
      if (!GoToProducer(part, arrival)) return swaps;
    }
  }

 private:
  const penstock::Lane& Lane(int rank) const { return lanes_[rank]; }
  std::size_t Cell(int stage, int microbatch) const {
    return Index(stage) * Index(problem_.indices) + Index(microbatch);
  }
  static std::size_t ListOf(Op op) {
    return op == Op::kForward ? 0 : op == Op::kBackwardWeight ? 2 : 1;
  }

  // Moves to the action whose result arrived last. Returns false if the part needed none.
  bool GoToProducer(const Part& part, double arrival) {
    const ChainShape shape = {problem_.placement.chain_length(), problem_.slices};
    const Op backward = problem_.split ? Op::kBackwardInput : Op::kBackward;
    Part producer;
    double latest = -1;
    ForEachDependency(shape, part, [&](const Value& value) {
      const Op op = value.kind == ValueKind::kActivation ? Op::kForward : backward;
      const Part candidate = {op, static_cast<std::uint16_t>(value.stage), value.microbatch};
      const int rank = problem_.placement.rank_of(value.stage);
      const double end = run_.EndOf(candidate) + problem_.costs.Comm(rank, at_.rank);
      if (end <= latest) return;
      latest = end;
      producer = candidate;
    });
    if (latest < arrival - slack_ || producer.op == Op::kNone) return false;
    at_ = {problem_.placement.rank_of(producer.stage),
           positions_[ListOf(producer.op)][Cell(producer.stage, producer.microbatch)]};
    return true;
  }

  const Problem& problem_;
  const Squeezer& run_;
  const std::vector<penstock::Lane>& lanes_;
  std::vector<std::size_t> positions_[3];  // of F, of I or B, of W, by stage and microbatch
  Position at_;
  double slack_ = 0;
};

}  // namespace

std::vector<Swap> CriticalSwaps(const Problem& problem, const Squeezer& run,
                                const std::vector<Lane>& lanes) {
  return Walk(problem, run, lanes).Collect();
}

}  // namespace penstock
