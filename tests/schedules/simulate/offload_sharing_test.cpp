// Offload transfers of ranks that share their links to the slower pool.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <tuple>

#include "schedule/passes/pass_table.h"
#include "simulate/pass_context.h"
#include "simulate/simulate.h"
#include "tests/schedules/schedule/random_catalog.h"
#include "tests/schedules/simulate/random_schedule.h"
#include "tests/schedules/simulate/timed_simulation.h"

namespace penstock::testing {
namespace {

// Costs whose sums never coincide by chance.
Costs Irregular(const Schedule& schedule, std::mt19937& random) {
  const auto time = [&] { return std::uniform_real_distribution<double>(0.5, 2)(random); };
  Costs costs = Costs::Uniform(schedule.placement, schedule.slices, 1, 1, 1, 0.3 * time());
  for (StageCosts& stage : costs.stages) {
    stage.forward = time();
    stage.backward_input = time();
    stage.backward_weight = time();
    stage.activation = stage.activation_after_i = time();
  }
  costs.offload = time();
  costs.reload = time();
  return costs;
}

// Offloads microbatches at random, whether or not their transfers end in time.
Schedule WithTransfers(const Schedule& schedule, std::mt19937& random) {
  Schedule out = schedule;
  for (Lane& lane : out.lanes) {
    std::map<std::pair<int, int>, bool> offloaded;
    Lane longer;
    for (const Action& action : lane) {
      ForEachPart(action, [&](const Part& part) {
        if (MakesInputGradient(part.op) && offloaded[{part.stage, part.microbatch}]) {
          longer.push_back(MakeAction(Op::kReload, part.stage, part.microbatch));
        }
      });
      longer.push_back(action);
      ForEachPart(action, [&](const Part& part) {
        if (part.op != Op::kForward || random() % 3 == 0) return;
        offloaded[{part.stage, part.microbatch}] = true;
        longer.push_back(MakeAction(Op::kOffload, part.stage, part.microbatch));
      });
    }
    lane = std::move(longer);
  }
  return out;
}

struct Transfer {
  double reached = 0;
  std::size_t rank = 0, position = 0;
  double ready = 0;  // the end of its OFFLOAD, for a RELOAD
  double time = 0;
  Span span;
};

// The transfers of one direction, by link, in the order in which ranks reach them.
std::map<std::size_t, std::vector<Transfer>> TransfersByLink(const Schedule& schedule,
                                                             const Costs& costs,
                                                             const Timeline& timeline, Op op) {
  std::map<std::size_t, std::vector<Transfer>> links;
  for (std::size_t rank = 0; rank < schedule.lanes.size(); ++rank) {
    double clock = 0;
    std::map<std::pair<int, int>, double> offloaded;
    for (std::size_t i = 0; i < schedule.lanes[rank].size(); ++i) {
      const Part& part = schedule.lanes[rank][i].first;
      const Span& span = timeline.spans[rank][i];
      if (OccupiesRank(part.op)) clock = span.end;
      if (part.op == op) {
        const double time = costs.TransferTime(part, costs.Of(part).activation);
        links[rank / costs.offload_sharing].push_back(
            {clock, rank, i, offloaded[{part.stage, part.microbatch}], time, span});
      }
      if (part.op == Op::kOffload) offloaded[{part.stage, part.microbatch}] = span.end;
    }
  }
  for (auto& [link, transfers] : links) {
    std::sort(transfers.begin(), transfers.end(), [](const Transfer& a, const Transfer& b) {
      return std::tie(a.reached, a.rank, a.position) < std::tie(b.reached, b.rank, b.position);
    });
  }
  return links;
}

TEST(OffloadSharing, LinksCarryTransfersInTheOrderInWhichRanksReachThem) {
  std::mt19937 random(17);
  std::size_t waited = 0;
  for (const Schedule& drawn : DrawCatalog(4, random)) {
    const Schedule schedule = WithTransfers(drawn, random);
    Costs costs = Irregular(schedule, random);
    costs.offload_sharing = 1 + static_cast<int>(random() % Index(schedule.ranks()));
    const Timeline timeline = TimelineOf(schedule, costs);
    for (const Op op : {Op::kOffload, Op::kReload}) {
      for (const auto& [link, transfers] : TransfersByLink(schedule, costs, timeline, op)) {
        double free = 0;
        for (const Transfer& transfer : transfers) {
          waited += free > std::max(transfer.reached, transfer.ready) ? 1 : 0;
          EXPECT_EQ(transfer.span.start, std::max({transfer.reached, transfer.ready, free}));
          EXPECT_EQ(transfer.span.end, transfer.span.start + transfer.time);
          free = transfer.span.end;
        }
      }
    }
  }
  EXPECT_GT(waited, 1000U);
}

// Ranks run in order of time, but nobody else uses their links.
TEST(OffloadSharing, OfLinksThatOneRankUsesIsNone) {
  std::mt19937 random(4);
  for (const Schedule& drawn : DrawCatalog(3, random)) {
    Schedule schedule = WithTransfers(drawn, random);
    for (std::size_t rank = 1; rank < schedule.lanes.size(); rank += 2) {
      schedule.lanes[rank] = drawn.lanes[rank];
    }
    Costs costs = Irregular(schedule, random);
    const Timeline own = TimelineOf(schedule, costs);
    const auto expected = Simulate(schedule, costs);
    costs.offload_sharing = std::min(2, schedule.ranks());
    const Timeline shared = TimelineOf(schedule, costs);
    const auto result = Simulate(schedule, costs);
    ASSERT_TRUE(expected && result);
    EXPECT_EQ(result->makespan, expected->makespan);
    EXPECT_EQ(result->peak_memory, expected->peak_memory);
    for (std::size_t rank = 0; rank < own.spans.size(); ++rank) {
      for (std::size_t i = 0; i < own.spans[rank].size(); ++i) {
        ASSERT_EQ(shared.spans[rank][i].start, own.spans[rank][i].start);
        ASSERT_EQ(shared.spans[rank][i].end, own.spans[rank][i].end);
      }
    }
  }
}

TEST(OffloadSharing, OfTwoRanks) {
  const Schedule schedule = Read(
      "0F0,0OFFLOAD0,0F1,0OFFLOAD1,0RELOAD0,0B0,0RELOAD1,0B1\n"
      "1F0,1OFFLOAD0,1F1,1RELOAD0,1B0,1B1\n");
  Costs costs = Uniform(schedule);
  costs.offload = 1.5;
  costs.offload_sharing = 2;
  const Timeline timeline = TimelineOf(schedule, costs);
  EXPECT_EQ(timeline.spans[0][1].start, 1);
  EXPECT_EQ(timeline.spans[0][3].start, 2.5)
      << "both ranks reach one at 2, and the first goes first";
  EXPECT_EQ(timeline.spans[1][1].start, 4);
  EXPECT_EQ(timeline.spans[1][3].start, 5.5) << "the rank's own OFFLOAD has ended";
}

TEST(OffloadSharing, IsPlannedForByThePass) {
  std::mt19937 random(9);
  std::size_t moved = 0;
  for (const Schedule& schedule : DrawCatalog(3, random)) {
    Costs costs = Costs::Uniform(schedule.placement, schedule.slices, 1, 1, 1, 0.125);
    costs.offload = costs.reload = 0.75;
    costs.offload_sharing = std::min(2, schedule.ranks());
    const std::vector<std::string> passes = {"offload"};
    const auto offloaded = ValueOf(RunSchedulePasses(schedule, passes, SimulatedContext(costs)));
    const auto before = Simulate(schedule, costs), after = Simulate(offloaded, costs);
    ASSERT_TRUE(before && after);
    EXPECT_NEAR(after->makespan, before->makespan, 1e-9) << Name(schedule);
    EXPECT_LE(after->peak_memory, before->peak_memory + 1e-9);
    for (const Lane& lane : offloaded.lanes) {
      moved += std::ranges::count(lane, Op::kOffload, [](const Action& a) { return a.first.op; });
    }
  }
  EXPECT_GT(moved, 100U);
}

TEST(OffloadSharing, IsAmongOneToAllRanks) {
  const Schedule schedule = Read("0F0,0B0\n1F0,1B0\n");
  Costs costs = Uniform(schedule);
  for (const int sharing : {-1, 0, 3}) {
    costs.offload_sharing = sharing;
    EXPECT_FALSE(Simulate(schedule, costs)) << sharing;
  }
}

}  // namespace
}  // namespace penstock::testing
