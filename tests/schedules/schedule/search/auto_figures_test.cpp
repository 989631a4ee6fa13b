// Compares searches with known results: zb-h1 with all delays of W, and v-auto with the best public
// peers at 16 ranks. The peers' figures belong to the shortest uniform building block (Controllable
// Memory, section 3.1) within the limit, with warm-up and drain reordered as sail-sg/zero-bubble
// does, priced by an independent script.
#include <gtest/gtest.h>

#include "schedule/search/problem/price_lanes.h"
#include "schedule/search/uniform_blocks.h"
#include "simulate/simulate.h"
#include "tests/results.h"
#include "tests/schedules/schedule/make_schedules.h"

namespace penstock::testing {
namespace {

struct PeerFigure {
  int microbatches;
  double forward, backward_input, backward_weight;
  double limit;
  double makespan;
};

ScheduleParams ParamsOf(const PeerFigure& figure) {
  return {.ranks = 16,
          .microbatches = figure.microbatches,
          .forward = figure.forward,
          .backward_input = figure.backward_input,
          .backward_weight = figure.backward_weight,
          .memory_limit = figure.limit};
}

TEST(AutoFigures, NoSlowerThanPeersAtSixteenRanks) {
  const std::vector<PeerFigure> peers = {
      {32, 1000, 1200, 800, 7, 140700},    {32, 1000, 900, 1100, 12, 107700},
      {48, 1000, 1200, 800, 13.5, 157200}, {64, 1000, 1000, 1000, 8, 215500},
      {64, 1000, 900, 1100, 12, 203700},   {64, 1000, 1200, 800, 12.5, 208200},
  };
  for (const PeerFigure& peer : peers) {
    const auto schedule = ValueOf(Generate("v-auto", ParamsOf(peer)));
    EXPECT_EQ(FirstFault(schedule), "");
    const Costs costs = Costs::Uniform(schedule.placement, 1, peer.forward, peer.backward_input,
                                       peer.backward_weight, 0);
    const auto result = ValueOf(Simulate(schedule, costs));
    const std::string at =
        fmt::format("m={} F,I,W={},{},{} limit={}", peer.microbatches, peer.forward,
                    peer.backward_input, peer.backward_weight, peer.limit);
    EXPECT_LE(result.makespan, peer.makespan * (1 + 1e-9)) << at;
    EXPECT_LE(result.peak_memory, peer.limit * (1 + 1e-9)) << at;
  }
}

// Returns lanes like ZB-H1's with other delays of W: the warm-up of 1F1B, then F, I and W in turn.
Schedule WithDelays(const Schedule& like, const std::vector<int>& delays) {
  Schedule schedule = like;
  const int m = like.microbatches;
  for (int rank = 0; rank < like.ranks(); ++rank) {
    Lane& lane = schedule.lanes[rank];
    lane.clear();
    int f = 0, i = 0, w = 0;
    while (f < std::min(m, like.ranks() - 1 - rank)) lane.push_back(Forward(rank, f++));
    for (int turn = 0; w < m; ++turn) {
      if (f < m) lane.push_back(Forward(rank, f++));
      if (i < m) lane.push_back(BackwardInput(rank, i++));
      if (turn >= delays[rank]) lane.push_back(BackwardWeight(rank, w++));
    }
  }
  return schedule;
}

// Returns the shortest makespan over all delays up to the rank and up to the number of forwards
// after the warm-up.
double ShortestOfAllDelays(const Schedule& like, const Costs& costs) {
  const std::size_t ranks = like.ranks();
  std::vector<int> delays(ranks), most(ranks);
  for (int rank = 0; rank < like.ranks(); ++rank) {
    const int warmup = std::min(like.microbatches, like.ranks() - 1 - rank);
    most[rank] = std::min(rank, like.microbatches - warmup);
  }
  double shortest = Simulate(like, costs)->makespan;
  for (std::size_t rank = 0; rank < ranks;) {
    const auto result = Simulate(WithDelays(like, delays), costs);
    shortest = std::min(shortest, result->makespan);
    for (rank = 0; rank < ranks && delays[rank] == most[rank]; ++rank) delays[rank] = 0;
    if (rank < ranks) ++delays[rank];
  }
  return shortest;
}

TEST(ZbH1, NoSlowerThanWithAnyOtherDelaysOfW) {
  for (const int ranks : {2, 4, 5}) {
    for (const int microbatches : {1, 3, 4, 7, 11}) {
      for (const auto& [i, w] :
           {std::pair{900., 1100.}, {1200., 800.}, {600., 1700.}, {1500., 400.}}) {
        ScheduleParams params = {.ranks = ranks,
                                 .microbatches = microbatches,
                                 .forward = 1000,
                                 .backward_input = i,
                                 .backward_weight = w};
        params.comm = microbatches % 2 == 0 ? 0 : 100;
        const auto schedule = ValueOf(Generate("zb-h1", params));
        EXPECT_EQ(FirstFault(schedule), "");
        const Costs costs = Costs::Uniform(schedule.placement, 1, 1000, i, w, params.comm);
        const auto result = ValueOf(Simulate(schedule, costs));
        EXPECT_LE(result.makespan, ShortestOfAllDelays(schedule, costs) * (1 + 1e-9))
            << fmt::format("p={} m={} I={} W={}", ranks, microbatches, i, w);
        EXPECT_EQ(result.peak_memory, std::min(microbatches, ranks));
      }
    }
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
}  // namespace penstock::testing
