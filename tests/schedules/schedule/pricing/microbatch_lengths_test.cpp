#include "schedule/pricing/microbatch_lengths.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <random>
#include <tuple>

#include "base/index.h"
#include "schedule/deps.h"
#include "schedule/pricing/rank_speed.h"
#include "simulate/memory/memory_over_time.h"
#include "simulate/simulate.h"
#include "tests/cases.h"
#include "tests/results.h"
#include "tests/schedules/schedule/draw.h"

namespace penstock::testing {
namespace {

BatchShape ShapeOf(const Schedule& schedule) {
  return {schedule.placement, schedule.microbatches, schedule.slices};
}

// What a user may ask for; the launch and the factors apply after the lengths.
struct Adjustments {
  std::vector<double> lengths = {};
  double launch = 0;
  std::map<int, double> factors = {};
};

Costs Adjusted(const Schedule& schedule, Costs costs, const Adjustments& adjustments) {
  EXPECT_TRUE(Succeeds(ScaleByLength(costs, adjustments.lengths, ShapeOf(schedule))));
  AddLaunches(costs, adjustments.launch);
  EXPECT_TRUE(SlowDown(costs, schedule.placement, adjustments.factors));
  return costs;
}

// Uneven stages with a whole B that costs less than I and W.
Costs DrawUnevenCosts(const Schedule& schedule, std::mt19937& random) {
  Costs costs = Costs::Uniform(schedule.placement, schedule.slices, Draw(random, 1, 4),
                               Draw(random, 1, 4), Draw(random, 1, 4), 0.25 * Draw(random, 0, 3));
  for (StageCosts& stage : costs.stages) {
    stage.forward += 0.25 * Draw(random, 0, 3);
    stage.activation_after_i = 0.5 * stage.activation;
    stage.saved_by_whole_backward = 0.25 * stage.backward_weight;
  }
  if (Draw(random, 0, 1) == 1) costs.overlap.kind = OverlapRule::Kind::kSum;
  return costs;
}

Adjustments DrawAdjustments(const Schedule& schedule, std::mt19937& random) {
  Adjustments adjustments;
  const int lengths = Draw(random, 1, schedule.microbatches);
  for (int i = 0; i < lengths; ++i) adjustments.lengths.push_back(0.25 * Draw(random, 1, 9));
  adjustments.launch = 0.125 * Draw(random, 0, 3);
  for (int rank = 0; rank < schedule.ranks(); ++rank) {
    if (Draw(random, 0, 2) == 0) adjustments.factors[rank] = 0.5 * Draw(random, 1, 5);
  }
  return adjustments;
}

// What the adjustments mean, computed action by action.
class Expected {
 public:
  Expected(const Schedule& schedule, const Costs& costs, const Adjustments& adjustments)
      : schedule_(schedule), costs_(costs), adjustments_(adjustments) {}

  double Length(const Part& part) const {
    const int chain = part.stage / schedule_.placement.chain_length();
    const int in_chain = schedule_.microbatches / schedule_.placement.replicas();
    const int microbatch = chain * in_chain + part.microbatch / schedule_.slices % in_chain;
    const std::vector<double>& lengths = adjustments_.lengths;
    return lengths.empty() ? 1 : lengths[Index(microbatch) % lengths.size()];
  }
  double Duration(const Part& part) const {
    if (!IsCompute(part.op)) return 0;
    const auto slow = adjustments_.factors.find(schedule_.placement.rank_of(part.stage));
    const double factor = slow == adjustments_.factors.end() ? 1 : slow->second;
    return (costs_.Duration(part) * Length(part) + adjustments_.launch) * factor;
  }
  double Duration(const Action& action) const {
    if (!action.is_pair()) return Duration(action.first);
    const bool forward_first = action.first.op == Op::kForward;
    return costs_.overlap.Price(Duration(forward_first ? action.first : action.second),
                                Duration(forward_first ? action.second : action.first));
  }

  // Runs any lane whose next action has its inputs, until none has. Returns the end by rank.
  std::vector<double> Run() {
    std::vector<std::size_t> next(schedule_.lanes.size());
    std::vector<double> clock(schedule_.lanes.size());
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t rank = 0; rank < next.size(); ++rank) {
        while (next[rank] < schedule_.lanes[rank].size() && RunOne(rank, next[rank], clock[rank])) {
          ++next[rank];
          moved = true;
        }
      }
    }
    for (std::size_t rank = 0; rank < next.size(); ++rank) {
      EXPECT_EQ(next[rank], schedule_.lanes[rank].size());
    }
    return clock;
  }

  double Peak(const Lane& lane) const {
    double held = 0, peak = 0;
    for (const Action& action : lane) {
      ForEachPart(action, [&](const Part& part) {
        if (part.op == Op::kForward) held += costs_.Of(part).activation * Length(part);
      });
      peak = std::max(peak, held);
      ForEachPart(action, [&](const Part& part) {
        if (IsCompute(part.op)) held -= costs_.Of(part).Freed(part.op) * Length(part);
      });
    }
    EXPECT_NEAR(held, 0, 1e-9);
    return peak;
  }

 private:
  bool RunOne(std::size_t rank, std::size_t position, double& clock) {
    const Action& action = schedule_.lanes[rank][position];
    if (!IsCompute(action)) return true;  // STEP without a price
    double start = clock;
    bool ready = true;
    ForEachPart(action, [&](const Part& part) {
      ForEachDependency(ChainShape::Of(schedule_), part, [&](const Value& value) {
        const auto made = ends_.find({value.kind, value.stage, value.microbatch});
        ready = ready && made != ends_.end();
        if (made == ends_.end()) return;
        const bool crosses = schedule_.placement.rank_of(value.stage) != static_cast<int>(rank);
        start = std::max(start, made->second + (crosses ? costs_.comm : 0));
      });
    });
    if (!ready) return false;
    clock = start + Duration(action);
    ForEachPart(action, [&](const Part& part) {
      if (part.op == Op::kBackwardWeight) return;
      ends_[{part.op == Op::kForward ? ValueKind::kActivation : ValueKind::kGradient,
             int{part.stage}, part.microbatch}] = clock;
    });
    return true;
  }

  const Schedule& schedule_;
  const Costs& costs_;
  const Adjustments& adjustments_;
  std::map<std::tuple<ValueKind, int, int>, double> ends_;
};

void ExpectAsComputedByAction(const Schedule& schedule, const Costs& costs,
                              const Adjustments& adjustments) {
  const Costs adjusted = Adjusted(schedule, costs, adjustments);
  Timeline timeline;
  const auto result = ValueOf(Simulate(schedule, adjusted, {.timeline = &timeline}));
  Expected expected(schedule, costs, adjustments);
  const std::vector<double> ends = expected.Run();
  for (std::size_t rank = 0; rank < ends.size(); ++rank) {
    double busy = 0;
    for (const Action& action : schedule.lanes[rank]) busy += expected.Duration(action);
    const RankResult& simulated = result.ranks[rank];
    ASSERT_NEAR(simulated.busy, busy, 1e-9 * busy) << rank;
    ASSERT_NEAR(simulated.last_end, ends[rank], 1e-9 * ends[rank]) << rank;
    ASSERT_NEAR(simulated.peak_memory, expected.Peak(schedule.lanes[rank]), 1e-9) << rank;
    const MemoryCurve curve = MemoryOverTime(schedule, timeline, adjusted, static_cast<int>(rank));
    ASSERT_NEAR(curve.back().amount, 0, 1e-9);
  }
}

TEST(MicrobatchLengths, EveryScheduleCostsWhatItsActionsCost) {
  std::mt19937 random(11);
  for (const Algorithm& algorithm : Catalog()) {
    int left = Cases(15);
    for (int attempt = 0; attempt < 50 * Cases(15) && left > 0; ++attempt) {
      const auto schedule = Generate(algorithm.name, DrawParams(algorithm, random));
      if (!schedule) continue;
      SCOPED_TRACE(algorithm.name);
      const Costs costs = DrawUnevenCosts(*schedule, random);
      ExpectAsComputedByAction(*schedule, costs, DrawAdjustments(*schedule, random));
      if (HasFatalFailure()) return;
      --left;
    }
    EXPECT_EQ(left, 0) << algorithm.name;
  }
}

// A search that plans with the adjusted costs keeps to its limit, whatever the lengths.
TEST(MicrobatchLengths, SearchesKeepToTheirLimit) {
  std::mt19937 random(12);
  int found = 0;
  for (int i = 0; i < Cases(60); ++i) {
    ScheduleParams params = {.ranks = Draw(random, 1, 4),
                             .microbatches = Draw(random, 2, 8),
                             .memory_limit = Draw(random, 2, 8)};
    const char* const name = i % 2 == 0 ? "zb-auto" : "v-auto";
    const auto plain = Generate(name, params);
    if (!plain) continue;
    const Costs costs = Adjusted(*plain, Costs::Uniform(plain->placement, 1, 1, 1, 1),
                                 DrawAdjustments(*plain, random));
    params.costs = costs;
    params.costs->by_slice.clear();
    const auto schedule = Generate(name, params);
    if (!schedule) continue;  // the longest microbatch does not fit
    ++found;
    EXPECT_LE(Simulate(*schedule, costs)->peak_memory, *params.memory_limit * (1 + 1e-9));
  }
  EXPECT_GT(found, Cases(20));
}

TEST(MicrobatchLengths, EqualLengthsNeedNoTable) {
  std::mt19937 random(13);
  const Schedule schedule = Generate("zb-h1", {.ranks = 4, .microbatches = 6}).value();
  const Costs costs = DrawUnevenCosts(schedule, random);
  const auto before = Simulate(schedule, costs).value();
  for (const double length : {1.0, 0.5}) {
    const Costs scaled = Adjusted(schedule, costs, {{length, length, length}});
    EXPECT_TRUE(scaled.by_slice.empty());
    const auto after = Simulate(schedule, scaled).value();
    for (std::size_t rank = 0; rank < before.ranks.size(); ++rank) {
      EXPECT_EQ(after.ranks[rank].busy, length * before.ranks[rank].busy);
      EXPECT_EQ(after.ranks[rank].peak_memory, length * before.ranks[rank].peak_memory);
    }
  }
  EXPECT_EQ(Simulate(schedule, Adjusted(schedule, costs, {{1, 1}}))->makespan, before.makespan);
  EXPECT_EQ(Simulate(schedule, Adjusted(schedule, costs, {}))->makespan, before.makespan);
}

// A table of equal costs gives the same figures to the last bit.
TEST(MicrobatchLengths, ATableOfEqualCostsChangesNoFigure) {
  std::mt19937 random(14);
  for (const Algorithm& algorithm : Catalog()) {
    const auto schedule = Generate(algorithm.name, {});
    ASSERT_TRUE(schedule) << algorithm.name;
    const Costs costs = DrawUnevenCosts(*schedule, random);
    Costs table = costs;
    for (const StageCosts& stage : costs.stages) {
      table.by_slice.insert(table.by_slice.end(), 3, stage);
    }
    const auto before = Simulate(*schedule, costs).value();
    const auto after = Simulate(*schedule, table).value();
    EXPECT_EQ(after.makespan, before.makespan) << algorithm.name;
    EXPECT_EQ(after.bubble, before.bubble) << algorithm.name;
    EXPECT_EQ(after.peak_memory, before.peak_memory) << algorithm.name;
  }
}

TEST(MicrobatchLengths, LongerMessagesTakeALinkLonger) {
  const Schedule schedule = Generate("naive", {.ranks = 2, .microbatches = 2}).value();
  Costs costs = Costs::Uniform(schedule.placement, 1, 1, 1, 1);
  costs.message_bytes = 8;
  costs.topology.levels.push_back({.name = "node", .bandwidth = 16});
  EXPECT_EQ(Simulate(schedule, costs)->makespan, 2 * 6 + 4 * 0.5);
  const Costs scaled = Adjusted(schedule, costs, {{1, 3}});
  EXPECT_EQ(Simulate(schedule, scaled)->makespan, 6 + 18 + 2 * 0.5 + 2 * 1.5);
}

TEST(MicrobatchLengths, ChainsRunTheirOwnMicrobatches) {
  const Schedule schedule = Generate("dualpipe", {.ranks = 2, .microbatches = 4}).value();
  const Costs costs = Costs::Uniform(schedule.placement, 1, 1, 1, 1);
  const Costs scaled = Adjusted(schedule, costs, {{1, 2, 4}});
  EXPECT_EQ(MeanLength(costs, ShapeOf(schedule)), 1);
  EXPECT_EQ(MeanLength(scaled, ShapeOf(schedule)), (1 + 2 + 4 + 1) / 4.0);
  // Chain 0 runs microbatches 0 and 1, chain 1 runs 2 and 3.
  EXPECT_EQ(scaled.Of({Op::kForward, 0, 1}).length, 2);
  EXPECT_EQ(scaled.Of({Op::kForward, 2, 0}).length, 4);
}

TEST(MicrobatchLengths, RefusesWhatIsOutOfRange) {
  const Schedule schedule = Generate("1f1b", {.ranks = 2, .microbatches = 2}).value();
  const double infinite = std::numeric_limits<double>::infinity();
  const std::pair<std::vector<double>, const char*> cases[] = {
      {{0}, "microbatch_lengths 0: "},
      {{1, -1}, "microbatch_lengths -1: "},
      {{1, infinite}, "microbatch_lengths inf: "},
      {{1, 2, 3}, "microbatch_lengths 1,2,3: 3 lengths for 2"},
      {{1, 1e16}, "microbatch_lengths 1,1e+16: costs forward 5000000000000000: must be at most"}};
  for (const auto& [lengths, message] : cases) {
    Costs costs = Costs::Uniform(schedule.placement, 1, 1, 1, 1);
    const Status refused = ScaleByLength(costs, lengths, ShapeOf(schedule));
    ASSERT_FALSE(refused) << message;
    EXPECT_TRUE(refused.error().line().starts_with(message)) << refused.error().line();
  }
}

}  // namespace
}  // namespace penstock::testing
