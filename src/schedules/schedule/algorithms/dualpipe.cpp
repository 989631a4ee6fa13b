// DualPipe and DualPipeV: microbatches enter from both ends. In steady state every action pairs a
// forward of one direction with a backward of the other, so that the communication of each overlaps
// with the compute of the other.
//
//   DualPipeV, rank 1 of 2, m = 4 (stages 1 and 2 are its chunks 0 and 1)
//   1F0 2F0 1F1 2F1 1F2 2B0 (2F2;1B0) (1F3;2B1) (2F3;1B1) 2B2 1I2 2I3 1I3 1W2 2W3 1W3
//
// DualPipe runs two chains over two replicas of the weights. DualPipeV cuts it in half: the chain
// returns over the same ranks as a vee, and each weight exists once. Bubble time (makespan minus
// the busy time of the least busy rank), where FB is a pair: dualpipe (p/2-1)(FB + B - 3W),
// dualpipev (p-1)(FB + B - 3W) in chunk times. Peak memory p + 1 and p + 1/2.
// DeepSeek-AI, DeepSeek-V3 Technical Report, 2024, section 3.2.1; github.com/deepseek-ai/DualPipe;
// Sea AI Lab, "Cut-in-half" DualPipe, 2025 (DualPipeV).
#include "base/index.h"
#include "schedule/algorithms/algorithms.h"

namespace penstock {
namespace {

// One rank's place in a vee of `ranks` ranks. Microbatches enter at chunk 0 and return at chunk 1.
struct HalfPipe {
  int ranks = 0;
  int rank = 0;
  int microbatches = 0;
  int stage[2] = {};
};

// Writes the lane. F, B and I of a chunk take its next microbatch, W the oldest pending one.
class DualPipeWriter {
 public:
  explicit DualPipeWriter(const HalfPipe& half) : half_(half) {
    lane_.reserve(6 * Index(half.microbatches));
    // W is pending only in the fill and the drain, a few per rank.
    pending_.reserve(3 * Index(half.ranks));
  }

  Lane Write() && {
    const int later = half_.ranks - 1 - half_.rank;  // ranks between here and the turn
    for (int i = 0; i < 2 * later; ++i) Add(F(0));
    for (int i = 0; i <= half_.rank; ++i) Add(F(0)), Add(F(1));
    for (int i = 0; i < later; ++i) Add(I(1)), AddW(), Add(F(1));
    Steady();
    for (int i = 0; i < later; ++i) Add(B(1)), AddPair(1, 0);
    Drain();
    for (int i = 0; i < later; ++i) AddW(), Add(I(0));
    while (next_pending_ < pending_.size()) AddW();
    return std::move(lane_);
  }

 private:
  void Steady() {
    const int turns = half_.microbatches - 2 * half_.ranks + half_.rank + 1;
    for (int i = 0; i < turns; ++i) {
      // At the turn of the vee the first backward needs the forward that it would be paired with.
      if (i == 0 && half_.rank == half_.ranks - 1) {
        Add(F(0)), Add(B(1));
      } else {
        AddPair(0, 1);
      }
      AddPair(1, 0);
    }
  }

  // The last backwards of the turn: the first half whole, the second half split for the tail.
  void Drain() {
    const int middle = (half_.rank + 1) / 2;
    for (int i = 0; i <= half_.rank; ++i) {
      const bool whole = i < middle || (i == middle && half_.rank % 2 == 0);
      Add(whole ? B(1) : I(1));
      Add(i < middle ? B(0) : I(0));
    }
  }

  Action F(int chunk) { return Forward(half_.stage[chunk], forwards_[chunk]++); }
  Action B(int chunk) { return Backward(half_.stage[chunk], backwards_[chunk]++); }
  Action I(int chunk) {
    pending_.push_back(BackwardWeight(half_.stage[chunk], backwards_[chunk]));
    return BackwardInput(half_.stage[chunk], backwards_[chunk]++);
  }
  void Add(Action action) { lane_.push_back(action); }
  void AddW() { lane_.push_back(pending_[next_pending_++]); }
  void AddPair(int forward, int backward) {
    const Action f = F(forward);
    lane_.push_back(Overlap(f, B(backward)));
  }

  const HalfPipe half_;
  Lane lane_;
  int forwards_[2] = {}, backwards_[2] = {};
  std::vector<Action> pending_;
  std::size_t next_pending_ = 0;
};

Status CheckMicrobatches(const ScheduleParams& params) {
  if (params.microbatches < 2 * std::int64_t{params.ranks}) {
    return InvalidParameter("microbatches", "{}: must be at least 2 per rank, {} for {} ranks",
                            params.microbatches, 2 * std::int64_t{params.ranks}, params.ranks);
  }
  return {};
}

Status CheckDualPipe(const ScheduleParams& params) {
  if (params.ranks % 2 != 0) return InvalidParameter("ranks", "{}: must be even", params.ranks);
  if (params.microbatches % 2 != 0) {
    return InvalidParameter("microbatches", "{}: must be even, half for each direction",
                            params.microbatches);
  }
  return CheckMicrobatches(params);
}

Schedule GenerateDualPipe(const ScheduleParams& params) {
  const int p = params.ranks;
  Schedule schedule = EmptySchedule(Placement::Bidirectional(p), params);
  for (int rank = 0; rank < p; ++rank) {
    HalfPipe half{
        p / 2, std::min(rank, p - 1 - rank), params.microbatches / 2, {rank, 2 * p - 1 - rank}};
    if (rank >= p / 2) std::swap(half.stage[0], half.stage[1]);
    schedule.lanes[rank] = DualPipeWriter(half).Write();
  }
  return schedule;
}

Schedule GenerateDualPipeV(const ScheduleParams& params) {
  const int p = params.ranks;
  Schedule schedule = EmptySchedule(Placement::Vee(p), params);
  for (int rank = 0; rank < p; ++rank) {
    const HalfPipe half{p, rank, params.microbatches, {rank, 2 * p - 1 - rank}};
    schedule.lanes[rank] = DualPipeWriter(half).Write();
  }
  return schedule;
}

// The figures if F = I = W and a pair takes at least as long as its backward and at most as long as
// both in sequence. `half.microbatches` counts one direction; `share` is a stage's fraction of a
// rank's share.
ClosedForm Figures(const ScheduleParams& params, const HalfPipe& half, double share) {
  ClosedForm form;
  form.peak_memory = params.ranks + share;
  const double f = share * params.forward, b = 2 * f, pair = params.overlap.Price(f, b);
  if (!EqualTimes(params) || pair < b || pair > f + b) return form;
  // Ranks near the turn have the most pairs. What these save makes them the least busy.
  const double twice = 2.0 * half.microbatches, saved = f + b - pair;
  const double most_pairs = twice - 2.0 * half.ranks - 1;
  const double least_pairs = std::min(most_pairs, twice - 3.0 * half.ranks + 1);
  const double makespan =
      twice * (f + b) - most_pairs * saved + (half.ranks - 1) * (pair + b - 3 * f);
  form.makespan = makespan;
  form.bubble = 1 - (twice * (f + b) - least_pairs * saved) / makespan;
  return form;
}

}  // namespace

Algorithm DualPipe() {
  Algorithm algorithm;
  algorithm.name = "dualpipe";
  algorithm.summary = "two directions over two replicas, with forward and backward overlapped";
  algorithm.when =
      "For mixture-of-experts models: its overlapped pairs hide the all-to-all of one microbatch "
      "behind the compute of another. Needs two copies of the weights.";
  algorithm.placement = PlacementForm::kBidirectional;
  algorithm.constraint = "p and m even, m >= 2p";
  algorithm.makespan = "bubble time (p/2-1)(FB+B-3W), FB a pair";
  algorithm.memory = "p+1; two copies of the weights";
  algorithm.source = "DeepSeek-V3 Technical Report, 2024, section 3.2.1";
  algorithm.supported = {.replicas = 2};
  algorithm.check = CheckDualPipe;
  algorithm.generate = GenerateDualPipe;
  algorithm.closed_form = [](const ScheduleParams& params) {
    return Figures(params, {params.ranks / 2, 0, params.microbatches / 2, {}}, 1);
  };
  return algorithm;
}

Algorithm DualPipeV() {
  Algorithm algorithm;
  algorithm.name = "dualpipev";
  algorithm.summary = "DualPipe cut in half: a vee, one copy of the weights";
  algorithm.when = "As dualpipe, if two copies of the weights do not fit: the same pairs on a vee.";
  algorithm.placement = PlacementForm::kVee;
  algorithm.constraint = "m >= 2p";
  algorithm.makespan = "bubble time (p-1)(FB+B-3W) in chunk times, FB a pair";
  algorithm.memory = "p+1/2";
  algorithm.source = "Sea AI Lab, Cut-in-half DualPipe, 2025; github.com/deepseek-ai/DualPipe";
  algorithm.supported = {.min_chunks = 2, .max_chunks = 2, .default_chunks = 2};
  algorithm.check = CheckMicrobatches;
  algorithm.generate = GenerateDualPipeV;
  algorithm.closed_form = [](const ScheduleParams& params) {
    return Figures(params, {params.ranks, 0, params.microbatches, {}}, 0.5);
  };
  return algorithm;
}

}  // namespace penstock
