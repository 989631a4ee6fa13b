// Stages without a part of the backward: what of a schedule is left, and that it is left right.
#include "schedule/untrained.h"

#include <gtest/gtest.h>

#include <random>

#include "schedule/passes/passes.h"
#include "simulate/simulate.h"
#include "tests/results.h"
#include "tests/schedules/schedule/draw.h"
#include "tests/schedules/schedule/random_catalog.h"
#include "tests/schedules/schedule/slow_checker.h"

namespace penstock::testing {
namespace {

Schedule Read(std::string_view csv) { return ValueOf(ParseCsv(csv)); }
std::string Without(std::string_view csv, const Untrained& untrained) {
  return WriteCsv(ValueOf(WithoutBackward(Read(csv), untrained)));
}

constexpr std::string_view kThree =
    "0F0,0SEND_F0,0RECV_B0,0B0,0STEP\n"
    "1RECV_F0,1F0,1SEND_F0,1RECV_B0,1I0,1SEND_B0,1W0,1STEP\n"
    "2RECV_F0,2F0,2B0,2SEND_B0,2STEP\n";

TEST(Untrained, RemovesWhatStagesLack) {
  EXPECT_EQ(Without(kThree, {.frozen = {0}}),
            "frozen=0\n"
            "rank=0,0F0,0SEND_F0\n"
            "rank=1,1RECV_F0,1F0,1SEND_F0,1RECV_B0,1I0,1W0,1STEP\n"
            "rank=2,2RECV_F0,2F0,2B0,2SEND_B0,2STEP\n");
  EXPECT_EQ(Without(kThree, {.frozen = {1}}),
            "frozen=1\n"
            "rank=0,0F0,0SEND_F0,0RECV_B0,0B0,0STEP\n"
            "rank=1,1RECV_F0,1F0,1SEND_F0,1RECV_B0,1I0,1SEND_B0\n"
            "rank=2,2RECV_F0,2F0,2B0,2SEND_B0,2STEP\n");
  EXPECT_EQ(Without(kThree, {.frozen = {0, 1}, .adapters = {2}}),
            "frozen=0-1,adapters=2\n"
            "rank=0,0F0,0SEND_F0\n"
            "rank=1,1RECV_F0,1F0,1SEND_F0\n"
            "rank=2,2RECV_F0,2F0,2I0,2STEP\n");
  EXPECT_EQ(Without(kThree, {.frozen = {0, 1, 2}}),
            "frozen=0-2\n"
            "rank=0,0F0,0SEND_F0\n"
            "rank=1,1RECV_F0,1F0,1SEND_F0\n"
            "rank=2,2RECV_F0,2F0\n");
}

TEST(Untrained, ValidatorSaysWhatAStageLacks) {
  const auto fault = [](std::string_view csv) {
    const auto faults = Validate(Read(csv));
    return faults.empty() ? "" : faults.front().action + ": " + faults.front().reason;
  };
  EXPECT_EQ(fault("frozen=0\nrank=0,0F0\nrank=1,1F0,1B0\n"), "");
  EXPECT_EQ(fault("frozen=1\nrank=0,0F0,0B0\nrank=1,1F0,1I0\n"), "");
  EXPECT_EQ(fault("0F0\n1F0,1B0\n"), "0B0: no rank runs it: stage 0 lacks it for microbatch 0");
  EXPECT_EQ(fault("frozen=0\nrank=0,0F0,0B0\nrank=1,1F0,1B0\n"),
            "0B0: stage 0 and all before it are frozen: it has only F");
  EXPECT_EQ(fault("frozen=1\nrank=0,0F0,0B0\nrank=1,1F0,1B0\n"),
            "1B0: stage 1 trains no weights of its own: its backward is I");
  EXPECT_EQ(fault("frozen=1\nrank=0,0F0,0B0\nrank=1,1F0,1I0,1W0\n"),
            "1W0: stage 1 is frozen: it has no gradients of its own");
  EXPECT_EQ(fault("adapters=1\nrank=0,0F0,0B0\nrank=1,1F0,1I0,1W0\n"),
            "1W0: stage 1 trains only adapters, whose gradients I computes");
  EXPECT_EQ(fault("frozen=1\nrank=0,0F0,0B0\nrank=1,1F0\n"),
            "0B0: it waits for 1I0 or 1B0 of rank 1, which never runs it");
  EXPECT_EQ(fault("adapters=0\nrank=0,0F0\nrank=1,1F0,1B0\n"),
            "0I0: no rank runs it: stage 0 lacks it for microbatch 0");
}

TEST(Untrained, RefusesStagesThatDoNotExistOrAreBoth) {
  EXPECT_TRUE(Refused(ParseCsv("frozen=2\nrank=0,0F0\nrank=1,1F0\n"), "stages 0 to 1"));
  EXPECT_TRUE(Refused(ParseCsv("frozen=0,adapters=0\nrank=0,0F0\n"), "stage 0 is"));
  EXPECT_TRUE(Refused(ParseCsv("frozen=x\nrank=0,0F0\n"), "give stages"));
  EXPECT_TRUE(Refused(ParseStages("3-1"), "neither a stage"));
  EXPECT_TRUE(Refused(ParseStages(""), "names no stage"));
  EXPECT_EQ(ValueOf(ParseStages("5, 0-2;2")), (std::vector<int>{0, 1, 2, 5}));
  EXPECT_EQ(StagesText({0, 1, 2, 5, 7, 8}), "0-2;5;7-8");
}

// Any schedule of the catalog, any sizes, any stages: valid, by a checker of its own, too, also
// lowered, and as text; no action later than with all stages trained.
TEST(Untrained, EveryScheduleOfTheCatalogLeavesThemOut) {
  std::mt19937 random(5);
  for (const Algorithm& algorithm : Catalog()) {
    int left = Cases(12);
    for (int attempt = 0; attempt < Cases(2000) && left > 0; ++attempt) {
      ScheduleParams params = DrawParams(algorithm, random);
      const auto whole = Generate(algorithm.name, params);
      if (!whole) continue;
      --left;
      params.untrained = DrawUntrained(whole->placement.chain_length(), random);
      const Schedule schedule = ValueOf(Generate(algorithm.name, params));
      SCOPED_TRACE(Name(schedule) + "\n" + WriteCsv(schedule));
      ASSERT_EQ(FirstFault(schedule), "");
      ASSERT_TRUE(SlowlyValid(schedule));
      ExpectRoundTrip(schedule);
      const Schedule lowered = AddCommunication(schedule);
      ASSERT_EQ(FirstFault(lowered), "");
      const Costs costs =
          Costs::Uniform(schedule.placement, schedule.slices, params.forward, params.backward_input,
                         params.backward_weight, params.comm);
      const auto priced = ValueOf(Simulate(schedule, costs));
      EXPECT_LE(priced.makespan, Simulate(*whole, costs)->makespan * (1 + 1e-12));
      EXPECT_EQ(priced.makespan, Simulate(lowered, costs)->makespan);
      // Removed from any lanes, no action starts later.
      const Schedule cut = ValueOf(WithoutBackward(*whole, params.untrained));
      EXPECT_LE(Simulate(cut, costs)->makespan, Simulate(*whole, costs)->makespan * (1 + 1e-12));
      EXPECT_LE(priced.makespan, Simulate(cut, costs)->makespan * (1 + 1e-12));
      if (HasFailure()) return;
    }
    EXPECT_EQ(left, 0) << algorithm.name;
  }
}

}  // namespace
}  // namespace penstock::testing
