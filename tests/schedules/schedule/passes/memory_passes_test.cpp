// Offload and recompute: no action is delayed, memory is as predicted, limits are met.
#include <algorithm>

#include "base/index.h"
#include "schedule/passes/passes.h"
#include "simulate/pass_context.h"
#include "tests/results.h"
#include "tests/schedules/schedule/random_catalog.h"

namespace penstock::testing {
namespace {

Priced PriceOf(const Schedule& schedule, const Costs& costs) {
  auto priced = SimulatedContext(costs).price(schedule);
  if (!priced) ADD_FAILURE() << priced.error().line() << " on " << Name(schedule);
  return priced ? *priced : Priced{};
}

Result<Schedule> Offloaded(const Schedule& schedule, const Costs& costs,
                           const OffloadOptions& options = {}) {
  return AddOffload(schedule, costs, SimulatedContext(costs).price, options);
}

// Returns the starts of the actions that occupy the rank, in order.
std::vector<double> Starts(const Lane& lane, const std::vector<Span>& spans) {
  std::vector<double> starts;
  for (std::size_t i = 0; i < lane.size(); ++i) {
    if (OccupiesRank(lane[i].first.op)) starts.push_back(spans[i].start);
  }
  return starts;
}

std::size_t Count(const Schedule& schedule, Op op) {
  std::size_t count = 0;
  for (const Lane& lane : schedule.lanes) {
    for (const Action& action : lane) count += action.first.op == op ? 1 : 0;
  }
  return count;
}

TEST(Offload, NothingStartsLaterAndNoPeakIsHigher) {
  std::mt19937 random(11);
  std::size_t moved = 0;
  for (const Schedule& drawn : DrawCatalog(10, random)) {
    Costs costs = Costs::Uniform(drawn.placement, drawn.slices, Draw(random, 1, 3),
                                 Draw(random, 1, 3), Draw(random, 1, 3), 0.3 * Draw(random, 0, 2));
    costs.offload = 0.37 * Draw(random, 0, 12);
    costs.reload = 0.37 * Draw(random, 0, 12);
    const Schedule schedule = Draw(random, 0, 1) == 0 ? drawn : AddCommunication(drawn);
    const auto offloaded = ValueOf(Offloaded(schedule, costs));
    ASSERT_EQ(FirstFault(offloaded), "") << Name(schedule);
    const Priced before = PriceOf(schedule, costs);
    const Priced after = PriceOf(offloaded, costs);
    EXPECT_NEAR(before.makespan, after.makespan, 1e-9);
    for (std::size_t r = 0; r < schedule.lanes.size(); ++r) {
      const auto planned = Starts(schedule.lanes[r], before.timeline.spans[r]);
      const auto real = Starts(offloaded.lanes[r], after.timeline.spans[r]);
      ASSERT_EQ(planned.size(), real.size());
      for (std::size_t i = 0; i < real.size(); ++i) {
        ASSERT_NEAR(planned[i], real[i], 1e-9) << Name(schedule) << " rank " << r;
      }
      EXPECT_LE(after.peak_memory[r], before.peak_memory[r] + 1e-9);
    }
    moved += Count(offloaded, Op::kOffload);
    EXPECT_EQ(Count(offloaded, Op::kOffload), Count(offloaded, Op::kReload));
  }
  EXPECT_GT(moved, 1000U);
}

// Finds the lowest peak of one rank that offloading can reach without delaying any action. Tries
// every set of microbatches and every position of their RELOADs in the order of their readers.
class LeastMemory {
 public:
  LeastMemory(const Schedule& schedule, const Costs& costs, std::size_t rank)
      : schedule_(schedule), costs_(costs), rank_(rank), before_(PriceOf(schedule, costs)) {
    least_ = before_.peak_memory[rank];
    const Lane& lane = schedule.lanes[rank];
    for (std::size_t b = 0; b < lane.size(); ++b) {
      ForEachPart(lane[b], [&](const Part& part) {
        if (!MakesInputGradient(part.op)) return;
        const auto f = std::find_if(lane.begin(), lane.end(), [&](const Action& action) {
          const Part forward = Forward(part.stage, part.microbatch).first;
          return action.first == forward || action.second == forward;
        });
        moves_.push_back({part, Index(f - lane.begin()), b, kStays});
        choices_ *= static_cast<double>(1 + b - moves_.back().f);
      });
    }
  }

  double choices() const { return choices_; }
  double Find() {
    Choose(0, 0);
    return least_;
  }

 private:
  static constexpr std::size_t kStays = ~std::size_t{0};
  struct Move {
    Part part;
    std::size_t f, reader;  // positions in the lane
    std::size_t reload;     // position that RELOAD precedes; kStays without a RELOAD
  };

  void Choose(std::size_t move, std::size_t lowest) {
    if (move == moves_.size()) return Try();
    moves_[move].reload = kStays;
    Choose(move + 1, lowest);
    const Move& chosen = moves_[move];
    for (std::size_t at = std::max(lowest, chosen.f + 1); at <= chosen.reader; ++at) {
      moves_[move].reload = at;
      Choose(move + 1, at);
    }
  }

  void Try() {
    const Lane& lane = schedule_.lanes[rank_];
    Schedule moved = schedule_;
    Lane& out = moved.lanes[rank_];
    out.clear();
    const auto action = [](Op op, const Part& part) {
      return MakeAction(op, part.stage, part.microbatch);
    };
    for (std::size_t i = 0; i < lane.size(); ++i) {
      for (const Move& each : moves_) {
        if (each.reload == i) out.push_back(action(Op::kReload, each.part));
      }
      out.push_back(lane[i]);
      for (const Move& each : moves_) {
        if (each.f == i && each.reload != kStays) out.push_back(action(Op::kOffload, each.part));
      }
    }
    const Priced after = PriceOf(moved, costs_);
    if (after.peak_memory[rank_] >= least_) return;
    const auto planned = Starts(lane, before_.timeline.spans[rank_]);
    const auto real = Starts(out, after.timeline.spans[rank_]);
    for (std::size_t i = 0; i < real.size(); ++i) {
      if (real[i] > planned[i] + 1e-9) return;
    }
    least_ = after.peak_memory[rank_];
  }

  const Schedule& schedule_;
  const Costs& costs_;
  const std::size_t rank_;
  const Priced before_;
  double least_ = 0, choices_ = 1;
  std::vector<Move> moves_;  // in the order of their readers
};

// The pass chooses by a rule and does not try everything, so it may rarely miss the minimum.
TEST(Offload, ReachesTheLeastMemoryThatTheLinkAllows) {
  std::mt19937 random(13);
  int searched = 0, missed = 0;
  for (int round = 0; round < Cases(150); ++round) {
    const std::vector<const char*> names = {"1f1b", "zb-h1", "gpipe", "interleaved", "zbv"};
    const Schedule schedule =
        Make(names[std::size_t(Draw(random, 0, 4))], {Draw(random, 2, 4), 0, Draw(random, 2, 6)});
    Costs costs = Costs::Uniform(schedule.placement, 1, Draw(random, 1, 3), Draw(random, 1, 3),
                                 Draw(random, 1, 3), 0.25 * Draw(random, 0, 1));
    costs.offload = 0.3 * Draw(random, 1, 20);
    costs.reload = 0.3 * Draw(random, 1, 20);
    const auto offloaded = ValueOf(Offloaded(schedule, costs));
    const Priced after = PriceOf(offloaded, costs);
    for (std::size_t rank = 0; rank < schedule.lanes.size(); ++rank) {
      LeastMemory least(schedule, costs, rank);
      if (least.choices() > 4000) continue;
      ++searched;
      missed += after.peak_memory[rank] > least.Find() + 1e-9 ? 1 : 0;
    }
  }
  EXPECT_GT(searched, Cases(150));
  EXPECT_LE(missed, 1 + searched / 100) << "of " << searched;
}

TEST(Offload, LimitMovesNoMoreThanItNeeds) {
  const Schedule schedule = Make("1f1b", {8, 0, 32});
  Costs costs = Costs::Uniform(schedule.placement, 1, 1, 1, 1);
  costs.offload = costs.reload = 1;
  std::size_t fewer = Count(*Offloaded(schedule, costs), Op::kOffload);
  for (const double limit : {3.0, 5.0, 7.0, 8.0}) {
    const auto offloaded = ValueOf(Offloaded(schedule, costs, {.memory_limit = limit}));
    const Priced priced = PriceOf(offloaded, costs);
    for (const double peak : priced.peak_memory) EXPECT_LE(peak, limit);
    const std::size_t moves = Count(offloaded, Op::kOffload);
    EXPECT_LE(moves, fewer) << limit;
    fewer = moves;
  }
  EXPECT_EQ(fewer, 0U) << "it needs 8 anyway";
  EXPECT_TRUE(
      Refused(Offloaded(schedule, costs, {.memory_limit = 0.5}), "", ErrorCode::kInfeasible));
}

TEST(Offload, MovesTheInputsOfRecomputedMicrobatches) {
  const Schedule schedule = Make("1f1b", {4, 0, 12});
  Costs costs = Costs::Uniform(schedule.placement, 1, 1, 1, 1);
  costs.offload = costs.reload = 1;
  for (StageCosts& stage : costs.stages) stage.input_activation = 0.5;
  const Schedule recomputed = *AddRecompute(schedule, costs, {});
  const auto both = Offloaded(recomputed, costs);
  ASSERT_TRUE(both);
  EXPECT_EQ(FirstFault(*both), "");
  EXPECT_LT(PriceOf(*both, costs).peak_memory[0], PriceOf(recomputed, costs).peak_memory[0]);
}

TEST(Recompute, WithoutALimitEveryMicrobatchIsRecomputed) {
  std::mt19937 random(13);
  for (const Schedule& schedule : DrawCatalog(4, random)) {
    const Costs costs = Costs::Uniform(schedule.placement, schedule.slices, 1, 1, 1);
    const Schedule recomputed = *AddRecompute(schedule, costs, {});
    ASSERT_EQ(FirstFault(recomputed), "") << Name(schedule);
    EXPECT_EQ(Count(recomputed, Op::kRecompute),
              Index(schedule.stages()) * Index(schedule.indices()))
        << Name(schedule);
  }
  // Where each B directly follows its F, nothing hides the time.
  for (const char* const name : {"1f1b", "gpipe", "naive", "zb-h1"}) {
    const Schedule schedule = Make(name, {1, 0, 8});
    const Costs costs = Costs::Uniform(schedule.placement, 1, 1, 1, 1);
    EXPECT_EQ(PriceOf(*AddRecompute(schedule, costs, {}), costs).makespan, 8 * 4) << name;
  }
}

TEST(Recompute, WithALimitNothingIsRecomputedThatSavesNoMemory) {
  const Schedule schedule = Make("1f1b", {4, 0, 12});
  Costs costs = Costs::Uniform(schedule.placement, 1, 1, 1, 1);
  const auto limited =
      AddRecompute(schedule, costs, SimulatedContext(costs).price, {.memory_limit = 1});
  ASSERT_TRUE(limited);
  for (const Action& action : limited->lanes[3]) EXPECT_NE(action.first.op, Op::kRecompute);
  EXPECT_EQ(PriceOf(*limited, costs).peak_memory, std::vector<double>(4, 1));
}

TEST(Recompute, MicrobatchesThatWaitKeepOnlyTheirInput) {
  const Schedule schedule = Make("gpipe", {1, 0, 6});
  Costs costs = Costs::Uniform(schedule.placement, 1, 1, 1, 1);
  costs.stages[0].input_activation = 0.125;
  const Schedule recomputed = *AddRecompute(schedule, costs, {});
  EXPECT_EQ(Count(recomputed, Op::kRecompute), 6U);
  EXPECT_EQ(PriceOf(schedule, costs).peak_memory[0], 6);
  EXPECT_EQ(PriceOf(recomputed, costs).peak_memory[0], 1 + 5 * 0.125);
  EXPECT_EQ(PriceOf(recomputed, costs).makespan, PriceOf(schedule, costs).makespan + 6);
}

TEST(Recompute, LimitIsMetOrRefused) {
  std::mt19937 random(12);
  int kept = 0;
  for (const Schedule& schedule : DrawCatalog(6, random)) {
    Costs costs = Costs::Uniform(schedule.placement, schedule.slices, 1, 1, 1);
    for (StageCosts& stage : costs.stages) stage.input_activation = stage.activation / 8;
    const Pricer price = SimulatedContext(costs).price;
    const std::vector<double> before = PriceOf(schedule, costs).peak_memory;
    const double limit = *std::max_element(before.begin(), before.end()) * 0.6;
    const auto recomputed = AddRecompute(schedule, costs, price, {.memory_limit = limit});
    const Schedule all = *AddRecompute(schedule, costs, price);
    const std::vector<double> least = PriceOf(all, costs).peak_memory;
    if (!recomputed) {
      EXPECT_GT(*std::max_element(least.begin(), least.end()), limit) << Name(schedule);
      continue;
    }
    ++kept;
    for (const double peak : PriceOf(*recomputed, costs).peak_memory) {
      EXPECT_LE(peak, limit + 1e-9) << Name(schedule);
    }
    EXPECT_LE(Count(*recomputed, Op::kRecompute), Count(all, Op::kRecompute));
  }
  EXPECT_GT(kept, 20);
}

}  // namespace
}  // namespace penstock::testing
