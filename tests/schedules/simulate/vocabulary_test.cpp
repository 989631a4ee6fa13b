// Schedules with a sharded vocabulary in the simulator, against times computed by relaxation.
#include "schedule/vocabulary.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "schedule/passes/passes.h"
#include "simulate/memory/memory_over_time.h"
#include "simulate/simulate.h"
#include "tests/cases.h"
#include "tests/results.h"
#include "tests/schedules/schedule/draw.h"
#include "tests/schedules/schedule/make_schedules.h"
#include "tests/schedules/simulate/timed_simulation.h"

namespace penstock::testing {
namespace {

// Raises the end of every action until all dependencies hold: the rules of vocabulary.h, literally.
class Relaxation {
 public:
  Relaxation(const Schedule& schedule, const Costs& costs) : schedule_(schedule), costs_(costs) {
    for (bool changed = true; changed;) {
      changed = false;
      for (int rank = 0; rank < schedule.ranks(); ++rank) {
        double clock = 0;
        for (const Action& action : schedule.lanes[Index(rank)]) {
          const double end =
              std::max(clock, InputsOf(action.first, rank)) + costs.Duration(action.first);
          double& known = end_[KeyOf(action.first)];
          changed = changed || end != known;
          clock = known = end;
        }
      }
    }
  }

  double EndOf(Op op, int stage, int microbatch) { return end_[{op, stage, microbatch}]; }

 private:
  using Key = std::tuple<Op, int, int>;
  static Key KeyOf(const Part& part) { return {part.op, part.stage, part.microbatch}; }

  double From(Op op, int stage, int n, int rank) {
    const double end = EndOf(op, stage, n);
    return end + (schedule_.placement.rank_of(stage) == rank ? 0 : costs_.comm);
  }
  double FromBackward(int stage, int n, int rank) {
    const bool whole = EndOf(Op::kBackward, stage, n) > 0;
    return From(whole ? Op::kBackward : Op::kBackwardInput, stage, n, rank);
  }
  double FromAll(Op op, int n) {
    double latest = 0;
    for (const int stage : VocabularyStages(schedule_))
      latest = std::max(latest, EndOf(op, stage, n));
    return latest + costs_.exchange;
  }

  double InputsOf(const Part& part, int rank) {
    const int last = schedule_.stages() - 1, stage = part.stage, n = part.microbatch;
    switch (part.op) {
      case Op::kForward:
        return stage == 0 ? FromAll(Op::kEmbed, n) : From(Op::kForward, stage - 1, n, rank);
      case Op::kBackward:
      case Op::kBackwardInput:
        return stage == last ? FromAll(Op::kVocabularyInput, n) : FromBackward(stage + 1, n, rank);
      case Op::kVocabularyInput:
        return From(Op::kForward, last, n, rank);
      case Op::kVocabularyWeight:
        return FromAll(Op::kVocabularyInput, n);
      case Op::kEmbedGradient:
        return FromBackward(0, n, rank);
      default:
        return 0;
    }
  }

  const Schedule& schedule_;
  const Costs& costs_;
  std::map<Key, double> end_;
};

Costs DrawCosts(const Schedule& schedule, std::mt19937& random) {
  Costs costs = Costs::Uniform(schedule.placement, 1, 1, 1, 1, 0.25 * Draw(random, 0, 2));
  costs.exchange = 0.25 * Draw(random, 0, 3);
  for (StageCosts& stage : costs.stages) {
    stage.forward = Draw(random, 1, 4);
    stage.backward_input = Draw(random, 1, 4);
    stage.backward_weight = Draw(random, 1, 4);
    stage.vocabulary_input = 0.25 * Draw(random, 1, 8);
    stage.vocabulary_weight = 0.25 * Draw(random, 1, 4);
    stage.embed = 0.125 * Draw(random, 1, 4);
    stage.embed_gradient = 0.125 * Draw(random, 1, 4);
    stage.softmax = 0.5 * Draw(random, 0, 4);
  }
  return costs;
}

TEST(SimulateVocabulary, TimesAndMemoryAreThoseOfARelaxation) {
  std::mt19937 random(3);
  for (int round = 0; round < Cases(80); ++round) {
    const bool chunks = Draw(random, 0, 1) == 1;
    const int p = Draw(random, 1, 5);
    const Schedule plain =
        chunks ? Make("interleaved", {p, 2, p * Draw(random, 1, 3)})
               : Make(Draw(random, 0, 1) == 0 ? "1f1b" : "zb-h1", {p, 1, Draw(random, 1, 10)});
    const Costs costs = DrawCosts(plain, random);
    const auto sharded = ValueOf(AddVocabulary(plain, costs));
    Relaxation expected(sharded, costs);
    const auto [result, timeline] = SimulateWithTimes(sharded, costs);
    for (std::size_t rank = 0; rank < sharded.lanes.size(); ++rank) {
      const Lane& lane = sharded.lanes[rank];
      double held = 0, peak = 0;
      for (std::size_t i = 0; i < lane.size(); ++i) {
        const auto& [op, stage, n] = lane[i].first;
        ASSERT_NEAR(timeline.spans[rank][i].end, expected.EndOf(op, stage, n), 1e-9)
            << ToText(lane[i]);
        const StageCosts& of = costs.stages[stage];
        if (op == Op::kForward) held += of.activation;
        if (op == Op::kVocabularyInput) held += of.softmax;
        peak = std::max(peak, held);
        if (EndsMicrobatch(op)) held -= of.activation;
        if (op == Op::kVocabularyWeight) held -= of.softmax;
      }
      EXPECT_NEAR(result.ranks[rank].peak_memory, peak, 1e-9);
      double curve_peak = 0;
      for (const MemoryPoint& point :
           MemoryOverTime(sharded, timeline, costs, static_cast<int>(rank))) {
        curve_peak = std::max(curve_peak, point.amount);
      }
      // Points at one time are merged, so that the curve may miss a peak of no duration.
      EXPECT_LE(curve_peak, peak + 1e-9);
    }
  }
}

// STEP waits for T and EMBED_GRAD too, and actions of passes leave the rest unchanged.
TEST(SimulateVocabulary, StepsWaitForGradientsOfTheVocabulary) {
  std::mt19937 random(4);
  for (int round = 0; round < Cases(30); ++round) {
    const Schedule plain = Make("1f1b", {Draw(random, 1, 5), 1, Draw(random, 1, 8)});
    Costs costs = DrawCosts(plain, random);
    costs.steps_wait_for_all = true;
    const auto sharded = ValueOf(AddVocabulary(plain, costs));
    const auto stepped = ValueOf(AddOptimizer(sharded));
    for (StageCosts& stage : costs.stages) stage.step = 1;
    const auto before = Simulate(sharded, costs), after = Simulate(stepped, costs);
    ASSERT_TRUE(before && after);
    EXPECT_NEAR(after->makespan, before->makespan + 1, 1e-9);
    for (std::size_t rank = 0; rank < after->ranks.size(); ++rank) {
      EXPECT_NEAR(after->ranks[rank].peak_memory, before->ranks[rank].peak_memory, 1e-9);
    }
  }
}

TEST(SimulateVocabulary, SaysWhatNeverRuns) {
  const Schedule plain = Make("1f1b", {2, 1, 2});
  const Costs costs = Costs::Uniform(plain.placement, 1, 1, 1, 1);
  auto sharded = AddVocabulary(plain, costs);
  ASSERT_TRUE(sharded);
  std::erase(sharded->lanes[0], MakeAction(Op::kVocabularyInput, 0, 1));
  EXPECT_TRUE(Refused(Simulate(*sharded, costs), "waits for S of microbatch 1 on every rank"));
}

}  // namespace
}  // namespace penstock::testing
