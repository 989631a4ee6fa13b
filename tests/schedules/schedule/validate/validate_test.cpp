#include "schedule/validate/validate.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/results.h"
#include "tests/schedules/schedule/make_schedules.h"

namespace penstock::testing {
namespace {

Schedule Parse(std::string_view csv, const CsvOptions& options = {}) {
  auto schedule = ParseCsv(csv, options);
  if (!schedule) ADD_FAILURE() << schedule.error().line();
  return *schedule;
}

bool Valid(std::string_view csv, const CsvOptions& options = {}) {
  return Validate(Parse(csv, options)).empty();
}

// Returns the first fault.
Fault First(std::string_view csv, const CsvOptions& options = {}) {
  const auto faults = Validate(Parse(csv, options));
  if (!faults.empty()) return faults.front();
  ADD_FAILURE() << "valid: " << csv;
  return {};
}

TEST(Validate, NamesRankPositionActionAndReason) {
  const Fault order = First("0F0,0B0,0B1,0F1\n1F0,1B0,1F1,1B1\n");
  EXPECT_EQ(order.rank, 0);
  const auto faults = Validate(Parse("0F0,0B0,0B1,0F1\n1F0,1B0,1F1,1B1\n"));
  EXPECT_TRUE(std::any_of(faults.begin(), faults.end(), [](const Fault& fault) {
    return fault.rank == 0 && fault.position == 2 && fault.action == "0B1" &&
           fault.reason.find("0F1") != std::string::npos;
  }));

  const Fault missing = First("0F0,0F1,0B0\n1F0,1B0,1F1,1B1\n");
  EXPECT_EQ(missing.rank, 0);
  EXPECT_EQ(missing.position, -1);
  EXPECT_EQ(missing.action, "0B1");
  const std::string text = Describe(Parse("0F0,0F1,0B0\n1F0,1B0,1F1,1B1\n"), missing);
  EXPECT_NE(text.find("nearest to it: 0F0 [0F1] 0B0"), std::string::npos) << text;
}

TEST(Validate, NamesTheWholeCycleOfADeadlock) {
  const char* csv = "0F0,0B0,0F1,0B1\n1F0,1F1,1B1,1B0\n2F0,2B0,2F1,2B1\n";
  const Fault fault = First(csv);
  EXPECT_EQ(fault.rank, 0);
  EXPECT_EQ(fault.position, 1);
  EXPECT_EQ(fault.reason,
            "deadlock: rank 0 at 0B0 waits for 1B0, rank 1 at 1F1 waits for 0F1, "
            "which comes later in rank 0");
  const std::string text = Describe(Parse(csv), fault);
  EXPECT_NE(text.find("rank 0: 0F0 [0B0] 0F1 0B1"), std::string::npos) << text;
  EXPECT_NE(text.find("rank 1: 1F0 [1F1] 1B1 1B0"), std::string::npos) << text;
  EXPECT_EQ(text.find("rank 2"), std::string::npos) << text;
}

TEST(Validate, CycleMayPassThroughAllRanks) {
  const Fault fault = First("0F0,0B0,3F0,3B0\n1F0,1B0\n2F0,2B0\n");
  EXPECT_EQ(fault.cycle.size(), 3U);
  EXPECT_EQ(fault.reason,
            "deadlock: rank 0 at 0B0 waits for 1B0, rank 1 at 1B0 waits for 2B0, "
            "rank 2 at 2B0 waits for 3B0, which comes later in rank 0");
}

TEST(Validate, WaitForAMissingActionIsNotACycle) {
  const auto faults = Validate(Parse("0F0,0B0\n1F0,1B0\n2B0\n"));
  ASSERT_FALSE(faults.empty());
  for (const Fault& fault : faults) {
    EXPECT_EQ(fault.reason.find("deadlock"), std::string::npos) << fault.reason;
  }
}

TEST(Validate, BackwardIsWholeOrSplit) {
  EXPECT_TRUE(Valid("0F0,0I0,0W0\n"));
  for (const char* csv : {"0F0,0B0,0W0\n", "0F0,0I0,0W0,0B0\n", "0F0,0I0,0B0\n", "0F0,0B0,0I0\n",
                          "0F0,0I0\n", "0F0,0W0\n"}) {
    EXPECT_FALSE(Valid(csv)) << csv;
  }
}

TEST(Validate, EverySendHasItsReceive) {
  EXPECT_TRUE(Valid("0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n"));
  EXPECT_FALSE(Valid("0F0,0SEND_F0,0RECV_B0,0B0\n1F0,1B0,1SEND_B0\n")) << "no RECV";
  EXPECT_FALSE(Valid("0F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n")) << "no SEND";
  EXPECT_FALSE(Valid("0SEND_F0,0F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n"))
      << "not computed yet";
  EXPECT_FALSE(Valid("0F0,0SEND_F0,0RECV_B0,0B0\n1F0,1RECV_F0,1B0,1SEND_B0\n")) << "too late";
  EXPECT_FALSE(Valid("0F0,0SEND_F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n"));
  EXPECT_FALSE(Valid("0RECV_F0,0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n"));
  EXPECT_FALSE(Valid("0F0,0RECV_B0,0B0,0SEND_F0\n1RECV_F0,1F0,1B0,1SEND_B0\n")) << "sent too late";
  EXPECT_FALSE(Valid("0F0,0SEND_F0,1F0,1B0,1SEND_B0,0B0\n")) << "inside a rank";
}

TEST(Validate, WaitSendFollowsItsSendAndTheReceive) {
  EXPECT_TRUE(
      Valid("0F0,0SEND_F0,0WAIT_SEND_F0,0RECV_B0,0B0\n"
            "1RECV_F0,1F0,1B0,1SEND_B0,1WAIT_SEND_B0\n"));
  EXPECT_FALSE(Valid("0F0,0SEND_F0,0RECV_B0,0B0,0WAIT_SEND_F0\n1RECV_F0,1F0,1B0,1SEND_B0\n"))
      << "if one SEND has it, all have";
  const char* rest = "\n1RECV_F0,1F0,1B0,1SEND_B0,1WAIT_SEND_B0\n";
  for (const char* lane : {"0F0,0WAIT_SEND_F0,0SEND_F0,0RECV_B0,0B0",
                           "0F0,0SEND_F0,0WAIT_SEND_F0,0WAIT_SEND_F0,0RECV_B0,0B0",
                           "0F0,0SEND_F0,0RECV_B0,0B0,0WAIT_SEND_B0"}) {
    EXPECT_FALSE(Valid(std::string(lane) + rest)) << lane;
  }
  EXPECT_FALSE(Valid("0F0,1F0,1B0,0B0,0WAIT_SEND_F0\n")) << "inside a rank";
  // The RECV of the next message comes before what the rank still has to send.
  const Fault cycle = First(
      "0F0,0SEND_F0,0WAIT_SEND_F0,0F1,0SEND_F1,0RECV_B1,0B1,0RECV_B0,0B0,0WAIT_SEND_F1\n"
      "1RECV_F1,1F1,1RECV_F0,1F0,1B1,1SEND_B1,1B0,1SEND_B0,1WAIT_SEND_B1,1WAIT_SEND_B0\n");
  EXPECT_EQ(cycle.reason,
            "deadlock: rank 0 at 0WAIT_SEND_F0 waits for 1RECV_F0, rank 1 at 1F1 waits for "
            "0SEND_F1, which comes later in rank 0");
}

TEST(Validate, WeightsAreUnshardedWhenRead) {
  EXPECT_TRUE(Valid("0UNSHARD,0F0,0B0,0RESHARD,0REDUCE_GRAD\n"));
  EXPECT_FALSE(Valid("0F0,0UNSHARD,0B0,0RESHARD\n"));
  EXPECT_FALSE(Valid("0UNSHARD,0F0,0RESHARD,0B0\n"));
  EXPECT_FALSE(Valid("0UNSHARD,0UNSHARD,0F0,0B0\n"));
  EXPECT_FALSE(Valid("0F0,0B0,0RESHARD\n"));
  EXPECT_FALSE(Valid("0F0,0REDUCE_GRAD,0B0\n")) << "before the last gradient";
  EXPECT_FALSE(Valid("0F0,0B0,0REDUCE_GRAD,0REDUCE_GRAD\n"));
  EXPECT_TRUE(Valid("0F0,0B0,0REDUCE_GRAD,0WAIT_REDUCE_GRAD\n"));
  EXPECT_FALSE(Valid("0F0,0B0,0WAIT_REDUCE_GRAD,0REDUCE_GRAD\n"));
  EXPECT_FALSE(Valid("0F0,0B0,0REDUCE_GRAD,0WAIT_REDUCE_GRAD,0WAIT_REDUCE_GRAD\n"));
  EXPECT_FALSE(Valid("0F0,1F0,1B0,1REDUCE_GRAD,1WAIT_REDUCE_GRAD,0B0,0REDUCE_GRAD\n"))
      << "if one REDUCE_GRAD has it, all have";
  EXPECT_TRUE(Valid("0UNSHARD,0F0,0B0\n")) << "as earlier versions of torch write it";
  EXPECT_FALSE(Valid("0F0,0B0,0REDUCE_GRAD\n1F0,1B0\n")) << "of one stage only";
  EXPECT_FALSE(Valid("0F0,0B0,0REDUCE_GRAD,0STEP\n1F0,1B0,1STEP\n")) << "of one stage only";
  EXPECT_FALSE(Valid("0F0,0B0,1REDUCE_GRAD\n1F0,1B0\n")) << "another rank's stage";
}

TEST(Validate, OffloadReloadAndRecompute) {
  EXPECT_TRUE(Valid("0F0,0OFFLOAD0,0RELOAD0,0B0\n"));
  EXPECT_TRUE(Valid("0F0,0OFFLOAD0,0RELOAD0,0RECOMPUTE0,0I0,0W0\n"));
  EXPECT_FALSE(Valid("0F0,0OFFLOAD0,0B0\n")) << "never reloaded";
  EXPECT_FALSE(Valid("0OFFLOAD0,0F0,0RELOAD0,0B0\n"));
  EXPECT_FALSE(Valid("0F0,0RELOAD0,0B0\n"));
  EXPECT_FALSE(Valid("0F0,0OFFLOAD0,0OFFLOAD0,0RELOAD0,0B0\n"));
  EXPECT_FALSE(Valid("0F0,0B0,0OFFLOAD0\n"));
  EXPECT_FALSE(Valid("0RECOMPUTE0,0F0,0B0\n"));
  EXPECT_FALSE(Valid("0F0,0I0,0RECOMPUTE0,0W0\n"));
  EXPECT_FALSE(Valid("0F0,0RECOMPUTE0,0RECOMPUTE0,0B0\n"));
  EXPECT_FALSE(Valid("0F0,0OFFLOAD0,0RECOMPUTE0,0RELOAD0,0B0\n"));
}

TEST(Validate, OptimizerStepsUnderEachWeightPolicy) {
  EXPECT_TRUE(Valid("0F0,0B0,0STEP\n1F0,1B0,1STEP\n"));
  EXPECT_FALSE(Valid("0F0,0B0,0STEP\n1F0,1B0\n")) << "one stage does not step";
  EXPECT_FALSE(Valid("0F0,0STEP,0B0\n"));
  EXPECT_FALSE(Valid("0F0,0B0,0STEP,0STEP\n"));
  EXPECT_FALSE(Valid("0F0,0B0,0STEP,0REDUCE_GRAD\n"));

  const CsvOptions two_batches = {.steps = 2};
  EXPECT_TRUE(Valid("0F0,0B0,0STEP,0F1,0B1,0STEP\n", two_batches));
  EXPECT_FALSE(Valid("0F0,0B0,0F1,0STEP,0B1,0STEP\n", two_batches)) << "old weights";

  const CsvOptions stashed = {.steps = 2, .weights = WeightPolicy::kStashed};
  EXPECT_TRUE(Valid("0F0,0F1,0B0,0STEP,0B1,0STEP\n1F0,1B0,1STEP,1F1,1B1,1STEP\n", stashed));
  EXPECT_FALSE(Valid("0F0,0F1,0B0,0STEP,0B1,0STEP\n1F0,1B0,1F1,1STEP,1B1,1STEP\n", stashed))
      << "the last stage's forward reads the version after the previous step";
  EXPECT_FALSE(Valid("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n", stashed)) << "no steps";

  const CsvOptions double_buffered = {.steps = 3, .weights = WeightPolicy::kDoubleBuffered};
  EXPECT_TRUE(Valid("0F0,0F1,0B0,0STEP,0F2,0B1,0STEP,0B2,0STEP\n", double_buffered));
  EXPECT_FALSE(Valid("0F0,0F1,0F2,0B0,0STEP,0B1,0STEP,0B2,0STEP\n", double_buffered))
      << "batch 2 reads W(1), which does not exist";
}

TEST(Validate, SequenceSlicesComeInOrder) {
  const CsvOptions two = {.slices = 2};
  EXPECT_TRUE(Valid("0F0,0F1,0B1,0B0\n", two));
  EXPECT_TRUE(Valid("0F0,0F1,0I1,0I0,0W0,0W1\n", two));
  EXPECT_FALSE(Valid("0F1,0F0,0B1,0B0\n", two)) << "a slice attends to those before it";
  EXPECT_FALSE(Valid("0F0,0F1,0B0,0B1\n", two)) << "gradients come from later slices";
  EXPECT_TRUE(Valid("0F1,0F0,0B0,0B1\n")) << "microbatches have no order";
}

TEST(Validate, PairsStartTogether) {
  EXPECT_TRUE(Valid("0F0,(0F1;0B0)OVERLAP_F_B,0B1\n"));
  EXPECT_FALSE(Valid("(0F0;0B0)OVERLAP_F_B\n")) << "B reads what F computes";
  EXPECT_FALSE(Valid("0F0,(1F0;0B1)OVERLAP_F_B,1B0,0B0\n"));
  EXPECT_FALSE(Valid("0F0,(0F1;0B0)OVERLAP_F_B,0B0,0B1\n")) << "0B0 runs twice";
}

TEST(Validate, FaultsAreLimited) {
  const Schedule schedule = Parse("0F0,0F1,0F2,0F3,0F4,0F5\n");
  EXPECT_EQ(Validate(schedule, {.max_faults = 3}).size(), 3U);
  EXPECT_EQ(Validate(schedule, {.max_faults = -1}).size(), 1U);
}

TEST(Validate, InvalidSizesAreFaults) {
  EXPECT_FALSE(Validate(Schedule{}).empty());
  for (const int number : {0, -1, 1 << 30}) {
    for (int field = 0; field < 3; ++field) {
      Schedule schedule = Make("1f1b", {2, 0, 2});
      (field == 0 ? schedule.microbatches : field == 1 ? schedule.slices : schedule.steps) = number;
      EXPECT_FALSE(Validate(schedule).empty()) << field << " " << number;
    }
  }
  Schedule fewer_lanes = Make("1f1b", {2, 0, 2});
  fewer_lanes.lanes.pop_back();
  EXPECT_FALSE(Validate(fewer_lanes).empty());
}

TEST(Validate, NeverCrashesOnRandomActions) {
  std::mt19937 random(7);
  for (int round = 0; round < 2000; ++round) {
    Schedule schedule = Make("interleaved", {3, 2, 4});
    for (Lane& lane : schedule.lanes) {
      for (Action& action : lane) {
        if (random() % 8 != 0) continue;
        const std::uint32_t bytes = random();
        action.first.op = static_cast<Op>(bytes & 0xFF);
        action.first.stage = static_cast<std::uint16_t>(bytes >> 8 & (random() % 2 ? 0x7 : 0xFFFF));
        action.first.microbatch = static_cast<std::int32_t>(random() % 2 ? random() % 5 : random());
        action.second.op =
            static_cast<Op>(random() % 2 ? random() & 0xFF : std::uint32_t(Op::kNone));
      }
    }
    const auto faults = Validate(schedule);
    for (const Fault& fault : faults) EXPECT_FALSE(Describe(schedule, fault).empty());
  }
}

// A fault without a rank, position or action names none.
TEST(Validate, ALineNamesOnlyWhatAFaultHas) {
  EXPECT_EQ(Line({-1, -1, "", "no rank"}), "no rank");
  EXPECT_EQ(Line({2, -1, "", "no action"}), "rank 2: no action");
  EXPECT_EQ(Line({-1, -1, "3B0", "missing"}), "3B0: missing");
  EXPECT_EQ(Line({0, 4, "3B0", "late"}), "rank 0, position 4, 3B0: late");
}

TEST(Validate, RequireValidNamesTheFirstFault) {
  Schedule schedule = Make("1f1b", {2, 0, 2});
  EXPECT_TRUE(RequireValid(schedule, "it"));
  schedule.lanes[1].pop_back();
  EXPECT_EQ(LineOf(RequireValid(schedule, "mine.csv")),
            "mine.csv is not a valid schedule: " + Line(Validate(schedule).front()));
}

}  // namespace
}  // namespace penstock::testing
