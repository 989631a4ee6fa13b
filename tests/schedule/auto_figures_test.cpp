// v-auto against the best of public peers at 16 ranks: the shortest of all uniform building blocks
// (Controllable Memory, section 3.1) within the limit, each with its warm-up and drain reordered as
// sail-sg/zero-bubble does, priced by an independent script.
#include <gtest/gtest.h>

#include "make_schedules.h"
#include "schedule/algorithms/uniform_blocks.h"
#include "simulate/simulate.h"

namespace penstock {
namespace {

using testing::FirstFault;

struct PeerFigure {
  int microbatches;
  double forward, backward_input, backward_weight;
  double limit;
  double makespan;
};

ScheduleParams ParamsOf(const PeerFigure& figure) {
  ScheduleParams params;
  params.ranks = 16;
  params.microbatches = figure.microbatches;
  params.forward = figure.forward;
  params.backward_input = figure.backward_input;
  params.backward_weight = figure.backward_weight;
  params.memory_limit = figure.limit;
  return params;
}

TEST(AutoFigures, NoLongerThanPeersAtSixteenRanks) {
  const std::vector<PeerFigure> peers = {
      {32, 1000, 1200, 800, 7, 140700},    {32, 1000, 900, 1100, 12, 107700},
      {48, 1000, 1200, 800, 13.5, 157200}, {64, 1000, 1000, 1000, 8, 215500},
      {64, 1000, 900, 1100, 12, 203700},   {64, 1000, 1200, 800, 12.5, 208200},
  };
  for (const PeerFigure& peer : peers) {
    const auto schedule = Generate("v-auto", ParamsOf(peer));
    ASSERT_TRUE(schedule) << schedule.error().message;
    EXPECT_EQ(FirstFault(*schedule), "");
    const Costs costs = Costs::Uniform(schedule->placement, 1, peer.forward, peer.backward_input,
                                       peer.backward_weight, 0);
    const auto result = Simulate(*schedule, costs);
    ASSERT_TRUE(result) << result.error().message;
    const std::string at =
        fmt::format("m={} F,I,W={},{},{} limit={}", peer.microbatches, peer.forward,
                    peer.backward_input, peer.backward_weight, peer.limit);
    EXPECT_LE(result->makespan, peer.makespan * (1 + 1e-9)) << at;
    EXPECT_LE(result->peak_memory, peer.limit * (1 + 1e-9)) << at;
  }
}

TEST(UniformBlocks, StayWithinTheMemoryLimit) {
  for (const double limit : {3.0, 4.0, 5.5}) {
    const Placement placement = Placement::Vee(6);
    const Costs costs = Costs::Uniform(placement, 1, 10, 12, 8, 1);
    const Problem problem = {placement, costs, 20, 1, true, limit};
    const std::vector<PeriodPattern> blocks = BestUniformBlocks(problem, 5);
    EXPECT_FALSE(blocks.empty()) << limit;
    for (const PeriodPattern& block : blocks) {
      EXPECT_LE(PeakMemory(problem, LanesOf(problem, block)), limit * (1 + 1e-9));
    }
  }
}

}  // namespace
}  // namespace penstock
