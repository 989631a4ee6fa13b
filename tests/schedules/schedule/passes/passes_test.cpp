// The guarantees of every pass, over random schedules of the whole catalog: a valid schedule stays
// valid, by one pass or several, and only the pass's own actions change.
#include "schedule/passes/passes.h"

#include <algorithm>
#include <map>

#include "schedule/passes/pass_table.h"
#include "simulate/pass_context.h"
#include "tests/results.h"
#include "tests/schedules/schedule/passes/pass_figures.h"
#include "tests/schedules/schedule/random_catalog.h"

namespace penstock::testing {
namespace {

// Returns the lanes without the actions of `ops`.
std::vector<Lane> Without(const Schedule& schedule, std::initializer_list<Op> ops) {
  std::vector<Lane> lanes = schedule.lanes;
  for (Lane& lane : lanes) {
    lane.erase(std::remove_if(lane.begin(), lane.end(),
                              [&](const Action& action) {
                                return std::find(ops.begin(), ops.end(), action.first.op) !=
                                       ops.end();
                              }),
               lane.end());
  }
  return lanes;
}

Schedule Applied(const std::string& pass, const Schedule& schedule, const Costs& costs) {
  const std::vector<std::string> passes = {pass};
  auto result = RunSchedulePasses(schedule, passes, SimulatedContext(costs));
  if (!result) ADD_FAILURE() << result.error().line() << " on " << Name(schedule);
  return result ? *result : schedule;
}

const std::vector<std::string> kEveryPass = {"communication",    "sharding=0",
                                             "sharding",         "sharding=2:keep",
                                             "reduce-grad",      "split-backward",
                                             "split-backward=2", "split-backward=rank",
                                             "merge-backward",   "merge-backward=adjacent",
                                             "overlap",          "overlap=all",
                                             "recompute",        "offload",
                                             "optimizer",        "optimizer=post-validation"};

TEST(Passes, EachKeepsEveryCatalogScheduleValid) {
  std::mt19937 random(3);
  for (const Schedule& schedule : DrawCatalog(12, random)) {
    const Costs costs = DrawPassCosts(schedule, random);
    for (const std::string& pass : kEveryPass) {
      const Schedule changed = Applied(pass, schedule, costs);
      ASSERT_EQ(FirstFault(changed), "") << pass << " on " << Name(schedule);
      Price(changed, costs);
    }
  }
}

TEST(Passes, AreIdempotent) {
  std::mt19937 random(5);
  for (const Schedule& schedule : DrawCatalog(3, random)) {
    const Costs costs = DrawPassCosts(schedule, random);
    for (const std::string& pass : kEveryPass) {
      if (pass.rfind("split", 0) == 0 || pass.rfind("overlap", 0) == 0) continue;
      const Schedule once = Applied(pass, schedule, costs);
      EXPECT_EQ(Applied(pass, once, costs).lanes, once.lanes) << pass << " on " << Name(schedule);
    }
  }
}

TEST(Passes, MisuseIsRefusedByName) {
  const Schedule schedule = Make("1f1b", {2, 0, 4});
  const Costs costs = Costs::Uniform(schedule.placement, 1, 1, 1, 1);
  const auto refused = [&](const std::string& pass, const std::string& words) {
    const std::vector<std::string> passes = {pass};
    EXPECT_TRUE(Refused(RunSchedulePasses(schedule, passes, SimulatedContext(costs)), words))
        << pass;
  };
  refused("shard", "no pass is called 'shard'");
  refused("sharding=-1", "'-1'");
  refused("sharding=1:2:3", "'3'");
  refused("communication=1", "'1'");
  refused("overlap=some", "'some'");
  refused("recompute=0.01", "rank 0");
  refused("offload=0.01", "rank 0");
  EXPECT_FALSE(AddOffload(schedule, costs, {})) << "without a simulator";
}

// ---- sharding

TEST(Sharding, KeepsTheNextStagesUnsharded) {
  const auto schedule = ParseCsv("0F0,0F1,1F0,1F1,2F0,2B0,2F1,2B1,1B0,1B1,0B0,0B1\n");
  EXPECT_EQ(WriteCsv(*AddSharding(*schedule, {.lookahead = 1})),
            "0UNSHARD,1UNSHARD,0F0,0F1,0RESHARD,2UNSHARD,1F0,1F1,2F0,2B0,2F1,2B1,2RESHARD,"
            "0UNSHARD,2REDUCE_GRAD,1B0,1B1,1RESHARD,1REDUCE_GRAD,0B0,0B1,0RESHARD,0REDUCE_GRAD\n");
  EXPECT_EQ(WriteCsv(*AddSharding(*schedule, {.lookahead = 1, .residency = kResidentToTheEnd})),
            "0UNSHARD,1UNSHARD,0F0,0F1,2UNSHARD,1F0,1F1,2F0,2B0,2F1,2B1,2RESHARD,"
            "2REDUCE_GRAD,1B0,1B1,1RESHARD,1REDUCE_GRAD,0B0,0B1,0RESHARD,0REDUCE_GRAD\n");
}

TEST(Sharding, UnshardsWithinItsOptionsAndMovesNothing) {
  std::mt19937 random(6);
  for (const Schedule& schedule : DrawCatalog(8, random)) {
    for (const int lookahead : {0, 1, 2, 5}) {
      for (const int residency : {0, 1, 2, 4, kResidentToTheEnd}) {
        const Schedule sharded = *AddSharding(schedule, {lookahead, residency});
        ASSERT_EQ(FirstFault(sharded), "") << Name(schedule);
        EXPECT_EQ(Without(sharded, {Op::kUnshard, Op::kReshard, Op::kReduceGrad}), schedule.lanes);
        for (int rank = 0; rank < sharded.ranks(); ++rank) {
          int gathered = 0, most = 0, times = 0;
          for (const Action& action : sharded.lanes[rank]) {
            if (action.first.op == Op::kUnshard) most = std::max(most, ++gathered), ++times;
            if (action.first.op == Op::kReshard) --gathered;
          }
          EXPECT_EQ(gathered, 0) << "every unsharded stage is freed";
          const int stages = static_cast<int>(sharded.placement.stages_of(rank).size());
          EXPECT_LE(most, std::min(stages, std::max({lookahead, residency, 1}) + 1));
          if (residency == kResidentToTheEnd) {
            EXPECT_EQ(times, stages) << "each stage is unsharded once";
          }
        }
      }
    }
  }
}

// Checks the rule directly: the next lookahead + 1 different stages are unsharded.
TEST(Sharding, NextStagesAreUnshardedAtEachUse) {
  std::mt19937 random(7);
  for (const Schedule& schedule : DrawCatalog(4, random)) {
    const int lookahead = Draw(random, 1, 3);
    const Schedule sharded = *AddSharding(schedule, {lookahead});
    for (const Lane& lane : sharded.lanes) {
      std::vector<int> gathered;
      for (std::size_t i = 0; i < lane.size(); ++i) {
        const int stage = lane[i].first.stage;
        if (lane[i].first.op == Op::kUnshard) gathered.push_back(stage);
        if (lane[i].first.op == Op::kReshard) std::erase(gathered, stage);
        if (!IsCompute(lane[i])) continue;
        std::vector<int> next;
        for (std::size_t j = i; j < lane.size() && static_cast<int>(next.size()) <= lookahead;
             ++j) {
          if (!IsCompute(lane[j])) continue;
          ForEachPart(lane[j], [&](const Part& part) {
            if (static_cast<int>(next.size()) > lookahead) return;
            if (std::count(next.begin(), next.end(), part.stage) == 0) next.push_back(part.stage);
          });
        }
        std::vector<int> now = gathered;
        std::sort(now.begin(), now.end());
        std::sort(next.begin(), next.end());
        ASSERT_EQ(now, next) << Name(schedule) << " at " << ToText(lane[i]);
      }
    }
  }
}

// Counts gathers on a rank that uses its four stages in turn.
TEST(Sharding, ResidencyAndLookaheadAreIndependent) {
  const auto schedule =
      ParseCsv("0F0,1F0,2F0,3F0,0F1,1F1,2F1,3F1,3B0,2B0,1B0,0B0,3B1,2B1,1B1,0B1\n");
  const auto gathers = [&](int lookahead, int residency) {
    return std::ranges::count_if(AddSharding(*schedule, {lookahead, residency})->lanes[0],
                                 [](const Action& each) { return each.first.op == Op::kUnshard; });
  };
  const auto early = [&](int lookahead, int residency) {
    const Lane lane = AddSharding(*schedule, {lookahead, residency})->lanes[0];
    return std::ranges::find_if(lane, [](const Action& each) { return IsCompute(each); }) -
           lane.begin();
  };
  for (const int residency : {0, 1, 2, 3}) {
    for (const int lookahead : {0, 1, 2, 3}) EXPECT_EQ(early(lookahead, residency), lookahead + 1);
    // A higher residency gathers less often, also with the least lookahead.
    if (residency == 0) continue;
    EXPECT_LT(gathers(0, residency), gathers(0, residency - 1));
  }
  EXPECT_EQ(gathers(0, 3), 4);
  EXPECT_EQ(gathers(0, kResidentToTheEnd), gathers(3, 0));
}

// ---- reduce-grad

TEST(ReduceGrad, FollowsTheLastBackwardAndItsSend) {
  const auto schedule = ParseCsv("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1I1,1W1\n");
  EXPECT_EQ(WriteCsv(AddReduceGrad(AddCommunication(*schedule))),
            "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1,0REDUCE_GRAD\n"
            "1RECV_F0,1F0,1RECV_F1,1B0,1SEND_B0,1F1,1I1,1SEND_B1,1W1,1REDUCE_GRAD\n");
}

TEST(ReduceGrad, RunsOncePerStageAndUpdate) {
  std::mt19937 random(8);
  for (const Schedule& schedule : DrawCatalog(8, random)) {
    const Schedule reduced = AddReduceGrad(schedule);
    EXPECT_EQ(Without(reduced, {Op::kReduceGrad}), schedule.lanes) << Name(schedule);
    const int updates = schedule.weights == WeightPolicy::kStashed
                            ? schedule.indices() / schedule.slices
                            : schedule.steps;
    const auto expect_once = [&](const Schedule& result) {
      std::map<int, int> count;
      for (const Lane& lane : result.lanes) {
        for (const Action& action : lane) {
          if (action.first.op == Op::kReduceGrad) ++count[action.first.stage];
        }
      }
      for (int stage = 0; stage < schedule.stages(); ++stage) {
        ASSERT_EQ(count[stage], updates) << Name(schedule) << " stage " << stage;
      }
    };
    expect_once(reduced);
    expect_once(*AddSharding(reduced));
    expect_once(AddReduceGrad(*AddSharding(schedule)));
  }
}

// ---- split and merge

TEST(SplitBackward, ByRankTurns1F1BIntoZbH1) {
  for (int ranks = 1; ranks <= 8; ++ranks) {
    for (const int microbatches : {ranks, ranks + 1, 2 * ranks, 5 * ranks + 3}) {
      const Schedule split =
          SplitBackward(Make("1f1b", {ranks, 0, microbatches}), {.delay_by_rank = true});
      EXPECT_EQ(WriteCsv(split), WriteCsv(Make("zb-h1", {ranks, 0, microbatches})))
          << ranks << " " << microbatches;
    }
  }
}

TEST(MergeBackward, UndoesSplitBackward) {
  std::mt19937 random(8);
  for (const Schedule& schedule : DrawCatalog(8, random)) {
    const Schedule whole = MergeBackward(schedule);
    for (const Lane& lane : whole.lanes) {
      for (const Action& action : lane) {
        ForEachPart(action, [](const Part& part) {
          EXPECT_TRUE(part.op == Op::kForward || part.op == Op::kBackward || part.op == Op::kStep);
        });
      }
    }
    EXPECT_EQ(MergeBackward(SplitBackward(whole), {.all = false}).lanes, whole.lanes);
    EXPECT_EQ(MergeBackward(SplitBackward(whole, {.delay = 3})).lanes, whole.lanes);
    EXPECT_EQ(MergeBackward(SplitBackward(AddCommunication(whole)), {.all = false}).lanes,
              AddCommunication(whole).lanes)
        << "messages between I and W do not separate them";
  }
}

// ---- overlap

// Replaces every pair by its two actions, in the order of the text.
Schedule Unpaired(const Schedule& schedule) {
  Schedule single = schedule;
  for (Lane& lane : single.lanes) {
    Lane parts;
    for (const Action& action : lane) {
      ForEachPart(action, [&](const Part& part) { parts.push_back({part, {}}); });
    }
    lane = parts;
  }
  return single;
}

TEST(Overlap, RecoversThePairsOfDualPipe) {
  for (const char* name : {"dualpipe", "dualpipev"}) {
    for (const int ranks : {2, 4, 6}) {
      const Schedule schedule = Make(name, {ranks, 0, 4 * ranks});
      const Costs costs = Costs::Uniform(schedule.placement, 1, 1, 1, 1);
      const Schedule paired = PairForwardBackward(Unpaired(schedule), costs, {.all = true});
      EXPECT_EQ(FirstFault(paired), "");
      EXPECT_GE(CountPairs(paired), CountPairs(schedule)) << name << " " << ranks;
    }
  }
}

TEST(Overlap, KeepsTheOrderAndStaysValid) {
  std::mt19937 random(9);
  for (const Schedule& drawn : DrawCatalog(8, random)) {
    const Schedule schedule = Unpaired(MergeBackward(drawn));
    if (!Validate(schedule).empty()) continue;  // a pair may need its parts together
    const Costs costs = DrawPassCosts(schedule, random);
    for (const bool all : {false, true}) {
      Schedule paired = PairForwardBackward(schedule, costs, {.all = all});
      ASSERT_EQ(FirstFault(paired), "") << Name(schedule);
      for (std::size_t r = 0; r < paired.lanes.size(); ++r) {
        // Each pair replaces two adjacent actions, in either order.
        std::size_t at = 0;
        for (const Action& action : paired.lanes[r]) {
          ASSERT_TRUE(action.first == schedule.lanes[r][at].first ||
                      action.second == schedule.lanes[r][at].first);
          at += action.is_pair() ? 2 : 1;
        }
        ASSERT_EQ(at, schedule.lanes[r].size());
      }
    }
  }
}

TEST(Overlap, ReadyPairsWithoutExtraCostShortenTheSchedule) {
  // A pair takes as long as its longer part. If its inputs are available, it ends no later than its
  // second part did alone.
  for (const int microbatches : {4, 9, 16}) {
    const Schedule schedule = Unpaired(Make("dualpipev", {4, 0, 8 + microbatches}));
    const Costs costs = Costs::Uniform(schedule.placement, 1, 1, 1, 1);
    const Schedule paired = PairForwardBackward(schedule, costs);
    EXPECT_GT(CountPairs(paired), 0U);
    EXPECT_LT(Price(paired, costs).makespan, Price(schedule, costs).makespan);
  }
}

TEST(Overlap, NeverPairsDependentActions) {
  // On the last rank of 1F1B every B needs the F before it.
  const Schedule schedule = Make("1f1b", {4, 0, 8});
  const Costs costs = Costs::Uniform(schedule.placement, 1, 1, 1, 1);
  const Schedule paired = PairForwardBackward(schedule, costs, {.all = true});
  int pairs = 0;
  for (const Action& action : paired.lanes[3]) {
    if (!action.is_pair()) continue;
    ++pairs;
    EXPECT_NE(action.first.microbatch, action.second.microbatch);
  }
  EXPECT_GT(pairs, 0);
  EXPECT_EQ(FirstFault(paired), "");
}

// ---- optimizer

TEST(Optimizer, StepsOnceTheGradientsAreComplete) {
  const Schedule schedule = Make("interleaved", {2, 2, 2});
  EXPECT_EQ(ToText(AddOptimizer(schedule, {.post_validation = true})->lanes[0].back()), "0STEP");
  for (const bool post_validation : {false, true}) {
    const Schedule stepped = *AddOptimizer(*AddSharding(schedule), {post_validation});
    EXPECT_EQ(FirstFault(stepped), "");
    const Lane& lane = stepped.lanes[0];
    const auto step = std::find(lane.begin(), lane.end(), MakeAction(Op::kStep, 2));
    const auto last = std::find(lane.begin(), lane.end(), Backward(0, 1));
    ASSERT_NE(step, lane.end());
    EXPECT_EQ(step < last, post_validation) << WriteCsv(stepped);
  }
}

TEST(Optimizer, RefusesABatchThatBeginsTooEarly) {
  const CsvOptions two_batches = {.steps = 2};
  const auto flushed = ParseCsv("0F0,0B0,0F1,0B1\n", two_batches);
  EXPECT_EQ(AddOptimizer(*flushed)->lanes,
            ParseCsv("0F0,0B0,0STEP,0F1,0B1,0STEP\n", two_batches)->lanes);
  const auto run_on = ParseCsv("0F0,0F1,0B0,0B1\n", two_batches);
  EXPECT_TRUE(Refused(AddOptimizer(*run_on), "STEP"));
}

}  // namespace
}  // namespace penstock::testing
