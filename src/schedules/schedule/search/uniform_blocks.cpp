// Uniform building blocks: on each rank the four passes of a microbatch (F and I of two chunks)
// take four of the six slots of a period. From one rank to the next F0 and I1 move by the same
// number of slots, F1 and I0 by one slot back. That number may change at one rank, which lets a
// block meet a memory limit between the peaks of two plain blocks. W fills the remaining slots.
//
//   v-min, ranks 0 to 2 of 4, offset 1   F0 W1 I1 I0 W0 F1      one period of each rank,
//                                        F1 F0 W1 I1 I0 W0      shifted by the slot that
//                                        W0 F1 F0 W1 I1 I0      a microbatch takes for a rank
//
// There are some hundred times p of them, few enough to try all of them for tens of ranks. The
// result with few microbatches predicts that with many: each further one takes one period.
#include "schedule/search/uniform_blocks.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "base/index.h"
#include "schedule/search/problem/average_times.h"
#include "schedule/search/problem/price_lanes.h"
#include "schedule/search/squeeze.h"

namespace penstock {
namespace {

constexpr int kPatternSlots = 6;  // of one microbatch on one rank
constexpr int kLastOffset = 5;
// The work of one choice, in actions run, and the fewest blocks that make it worthwhile.
constexpr double kBlockBudget = 1.2e6;
constexpr double kFewestBlocks = 16;
// Microbatches in addition to the ones that fit the memory, to show a block's fill and drain.
constexpr double kMicrobatchesBeyondMemory = 4;

// The slots of F0, F1, I1, I0, W1 and W0 in one period.
enum Pass { kF0, kF1, kI1, kI0, kW1, kW0, kPasses };
using RankSlots = std::array<int, kPasses>;

struct UniformBlock {
  int first[4];   // slots of F0, F1, I1 and I0 on rank 0
  int offset[2];  // slots from rank to rank of F0 and I1, before rank `change` and from it on
  int change;     // rank
};

int InPeriod(int slot) { return (slot % kPatternSlots + kPatternSlots) % kPatternSlots; }

// Assigns W1 and W0 the first free slots after their I. Returns false if two passes share a slot.
bool FillRank(RankSlots& slots) {
  std::array<bool, kPatternSlots> taken = {};
  for (const Pass pass : {kF0, kF1, kI1, kI0}) {
    bool& slot = taken[slots[pass]];
    if (slot) return false;
    slot = true;
  }
  for (const Pass pass : {kI1, kI0}) {
    int slot = slots[pass];
    while (taken[slot]) slot = InPeriod(slot + 1);
    taken[slot] = true;
    slots[pass + 2] = slot;
  }
  return true;
}

// The first slot after `time` with this position in the period.
int NextSlot(int time, int slot) { return time + 1 + InPeriod(slot - time - 1); }

std::optional<PeriodPattern> PatternOf(const UniformBlock& block, int ranks) {
  std::vector<RankSlots> slots(ranks);
  int moved = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    RankSlots& here = slots[rank];
    here = {InPeriod(block.first[0] + moved), InPeriod(block.first[1] - rank),
            InPeriod(block.first[2] + moved), InPeriod(block.first[3] - rank)};
    if (!FillRank(here)) return std::nullopt;
    moved += block.offset[rank < block.change ? 0 : 1];
  }
  PeriodPattern pattern(2 * ranks);
  pattern.period = kPatternSlots;
  int time = -1;
  const auto rank_of = [&](int stage) { return Index(std::min(stage, 2 * ranks - 1 - stage)); };
  for (int stage = 0; stage < 2 * ranks; ++stage) {
    time = NextSlot(time, slots[rank_of(stage)][stage < ranks ? kF0 : kF1]);
    pattern.forward[stage] = time;
  }
  for (int stage = 2 * ranks - 1; stage >= 0; --stage) {
    const Pass pass = stage < ranks ? kI0 : kI1;
    time = NextSlot(time, slots[rank_of(stage)][pass]);
    pattern.backward[stage] = time;
    pattern.weight[stage] = NextSlot(time, slots[rank_of(stage)][pass + 2]);
  }
  return pattern;
}

// Calls visit(UniformBlock) for all blocks, with every `step`-th rank as `change`.
template <class Visit>
void ForEachBlock(int ranks, int step, Visit visit) {
  for (int starts = 0; starts < kLastOffset * kLastOffset * kLastOffset; ++starts) {
    const int f1 = 1 + starts / 25, i1 = 1 + starts / 5 % 5, i0 = 1 + starts % 5;
    if (f1 == i1 || f1 == i0 || i1 == i0) continue;
    for (int before = 1; before <= kLastOffset; ++before) {
      visit(UniformBlock{{0, f1, i1, i0}, {before, before}, 0});
      for (int after = 1; after < before; ++after) {
        for (int change = 1; change < ranks; change += step) {
          visit(UniformBlock{{0, f1, i1, i0}, {before, after}, change});
        }
      }
    }
  }
}

bool Fits(const Problem& problem, const PeriodPattern& pattern) {
  if (problem.indices >= 2 * problem.placement.ranks()) return FitsMemory(problem, pattern);
  return PeakMemory(problem, LanesOf(problem, pattern)) <= problem.memory_limit * (1 + kRounding);
}

std::vector<PeriodPattern> BlocksThatFit(const Problem& problem, int step) {
  std::vector<PeriodPattern> blocks;
  ForEachBlock(problem.placement.ranks(), step, [&](const UniformBlock& block) {
    std::optional<PeriodPattern> pattern = PatternOf(block, problem.placement.ranks());
    if (pattern && Fits(problem, *pattern)) blocks.push_back(*std::move(pattern));
  });
  return blocks;
}

// The makespan of the lanes of a block, squeezed with the real times and with equal ones.
class BlockTrial {
 public:
  explicit BlockTrial(const Problem& problem)
      : problem_(problem),
        averages_(AverageTimes(problem)),
        equal_times_(HasEqualTimes(problem)),
        squeezer_(problem),
        average_squeezer_(
            {problem.placement, averages_, problem.indices, 1, true, problem.memory_limit}) {}

  double MakespanOf(const PeriodPattern& block) {
    SqueezeOptions fill;
    fill.weights_last = SqueezeOptions::WeightsLast::kInDrain;
    fill.by_insertion = true;
    SqueezeOptions in_order;
    in_order.window = 1;
    const std::vector<Lane> lanes = LanesOf(problem_, block);
    double makespan = squeezer_.Run(lanes, fill);
    if (!equal_times_ && average_squeezer_.Run(lanes, fill) < kNever) {
      makespan = std::min(makespan, squeezer_.Run(average_squeezer_.lanes(), in_order));
    }
    return makespan;
  }

 private:
  const Problem& problem_;
  const Costs averages_;
  const bool equal_times_;
  Squeezer squeezer_;
  Squeezer average_squeezer_;
};

}  // namespace

std::vector<PeriodPattern> BestUniformBlocks(const Problem& problem, std::size_t count) {
  Problem few = problem;
  const double fit = problem.memory_limit / LeastMemory(problem.placement, problem.costs);
  few.indices = static_cast<int>(std::min<double>(
      problem.indices,
      std::min(std::ceil(fit), 2.0 * problem.placement.ranks()) + kMicrobatchesBeyondMemory));
  const double actions = 3.0 * problem.placement.stages() * few.indices;
  const double affordable = kBlockBudget / actions / (HasEqualTimes(problem) ? 1 : 3);
  if (affordable < kFewestBlocks) return {};

  std::vector<PeriodPattern> blocks = BlocksThatFit(problem, 1);
  BlockTrial trial(few);
  const std::size_t step = std::ceil(static_cast<double>(blocks.size()) / affordable);
  struct Tried {
    double makespan;
    std::size_t block;
  };
  std::vector<Tried> tried;
  for (std::size_t i = 0; i < blocks.size(); i += step) {
    tried.push_back({trial.MakespanOf(blocks[i]), i});
  }
  std::stable_sort(tried.begin(), tried.end(),
                   [](const Tried& a, const Tried& b) { return a.makespan < b.makespan; });
  std::vector<PeriodPattern> best;
  for (const Tried& one : tried) {
    if (best.size() == count) break;
    best.push_back(std::move(blocks[one.block]));
  }
  return best;
}

}  // namespace penstock
