#include "schedule/validate.h"

#include <gtest/gtest.h>

#include <random>

#include "make_schedules.h"
#include "schedule/passes/passes.h"
#include "slow_checker.h"

namespace penstock {
namespace {

using testing::Make;
using testing::PairWherePossible;
using testing::SlowlyValid;
using testing::SplitBackwards;

Schedule Parse(std::string_view csv, const CsvOptions& options = {}) {
  auto schedule = ParseCsv(csv, options);
  if (!schedule) ADD_FAILURE() << schedule.error().message;
  return *schedule;
}

bool Valid(std::string_view csv, const CsvOptions& options = {}) {
  return Validate(Parse(csv, options)).empty();
}

// The first fault's reason, rank and position.
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
}

TEST(Validate, NamesTheWholeCycleOfADeadlock) {
  const Fault fault = First("0F0,0B0,0F1,0B1\n1F0,1F1,1B1,1B0\n");
  EXPECT_EQ(fault.rank, 0);
  EXPECT_EQ(fault.position, 1);
  EXPECT_NE(fault.reason.find("deadlock"), std::string::npos);
  for (const char* word : {"rank 0 at 0B0 waits for 1I0 or 1B0", "rank 1 at 1F1 waits for 0F1"}) {
    EXPECT_NE(fault.reason.find(word), std::string::npos) << fault.reason;
  }
  const std::string text = Describe(Parse("0F0,0B0,0F1,0B1\n1F0,1F1,1B1,1B0\n"), fault);
  EXPECT_NE(text.find("0F0 [0B0] 0F1 0B1"), std::string::npos) << text;
}

TEST(Validate, AWaitForWhatNeverRunsIsNoCycle) {
  const auto faults = Validate(Parse("0F0,0B0\n1F0,1B0\n2B0\n"));
  ASSERT_FALSE(faults.empty());
  for (const Fault& fault : faults) {
    EXPECT_EQ(fault.reason.find("deadlock"), std::string::npos) << fault.reason;
  }
}

TEST(Validate, EverySendHasItsReceive) {
  EXPECT_TRUE(Valid("0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n"));
  EXPECT_FALSE(Valid("0F0,0SEND_F0,0RECV_B0,0B0\n1F0,1B0,1SEND_B0\n")) << "no RECV";
  EXPECT_FALSE(Valid("0F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n")) << "no SEND";
  EXPECT_FALSE(Valid("0SEND_F0,0F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n")) << "unmade";
  EXPECT_FALSE(Valid("0F0,0SEND_F0,0RECV_B0,0B0\n1F0,1RECV_F0,1B0,1SEND_B0\n")) << "too late";
  EXPECT_FALSE(Valid("0F0,0SEND_F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n"));
  EXPECT_FALSE(Valid("0RECV_F0,0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n"));
  EXPECT_FALSE(Valid("0F0,0RECV_B0,0B0,0SEND_F0\n1RECV_F0,1F0,1B0,1SEND_B0\n")) << "sent too late";
  EXPECT_FALSE(Valid("0F0,0SEND_F0,1F0,1B0,1SEND_B0,0B0\n")) << "inside a rank";
}

TEST(Validate, ShardsAreThereWhenTheyAreRead) {
  EXPECT_TRUE(Valid("0UNSHARD,0F0,0B0,0RESHARD,0REDUCE_GRAD\n"));
  EXPECT_FALSE(Valid("0F0,0UNSHARD,0B0,0RESHARD\n"));
  EXPECT_FALSE(Valid("0UNSHARD,0F0,0RESHARD,0B0\n"));
  EXPECT_FALSE(Valid("0UNSHARD,0UNSHARD,0F0,0B0\n"));
  EXPECT_FALSE(Valid("0F0,0B0,0RESHARD\n"));
  EXPECT_FALSE(Valid("0F0,0REDUCE_GRAD,0B0\n")) << "before the last gradient";
  EXPECT_FALSE(Valid("0F0,0B0,0REDUCE_GRAD,0REDUCE_GRAD\n"));
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
      << "the last stage's forward reads the version after the step before";
  EXPECT_FALSE(Valid("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n", stashed)) << "no steps";

  const CsvOptions double_buffered = {.steps = 3, .weights = WeightPolicy::kDoubleBuffered};
  EXPECT_TRUE(Valid("0F0,0F1,0B0,0STEP,0F2,0B1,0STEP,0B2,0STEP\n", double_buffered));
  EXPECT_FALSE(Valid("0F0,0F1,0F2,0B0,0STEP,0B1,0STEP,0B2,0STEP\n", double_buffered))
      << "batch 2 reads W(1), which is not there";
}

TEST(Validate, SequenceCutsComeInOrder) {
  const CsvOptions two = {.cuts = 2};
  EXPECT_TRUE(Valid("0F0,0F1,0B1,0B0\n", two));
  EXPECT_TRUE(Valid("0F0,0F1,0I1,0I0,0W0,0W1\n", two));
  EXPECT_FALSE(Valid("0F1,0F0,0B1,0B0\n", two)) << "a cut attends to those before it";
  EXPECT_FALSE(Valid("0F0,0F1,0B0,0B1\n", two)) << "gradients come back from the cuts behind";
  EXPECT_TRUE(Valid("0F1,0F0,0B0,0B1\n")) << "microbatches are free";
}

TEST(Validate, PairsStartTogether) {
  EXPECT_TRUE(Valid("0F0,(0F1;0B0)OVERLAP_F_B,0B1\n"));
  EXPECT_FALSE(Valid("(0F0;0B0)OVERLAP_F_B\n")) << "B reads what F makes";
  EXPECT_FALSE(Valid("0F0,(1F0;0B1)OVERLAP_F_B,1B0,0B0\n"));
  EXPECT_FALSE(Valid("0F0,(0F1;0B0)OVERLAP_F_B,0B0,0B1\n")) << "0B0 runs twice";
}

TEST(Validate, FaultsAreLimited) {
  const Schedule schedule = Parse("0F0,0F1,0F2,0F3,0F4,0F5\n");
  EXPECT_EQ(Validate(schedule, {.max_faults = 3}).size(), 3U);
  EXPECT_EQ(Validate(schedule, {.max_faults = -1}).size(), 1U);
}

TEST(Validate, NumbersWithoutSenseAreFaults) {
  EXPECT_FALSE(Validate(Schedule{}).empty());
  for (const int number : {0, -1, 1 << 30}) {
    for (int field = 0; field < 3; ++field) {
      Schedule schedule = Make("1f1b", {2, 0, 2});
      (field == 0 ? schedule.microbatches : field == 1 ? schedule.cuts : schedule.steps) = number;
      EXPECT_FALSE(Validate(schedule).empty()) << field << " " << number;
    }
  }
  Schedule fewer_lanes = Make("1f1b", {2, 0, 2});
  fewer_lanes.lanes.pop_back();
  EXPECT_FALSE(Validate(fewer_lanes).empty());
}

TEST(Validate, NeverCrashesOnAnyBytes) {
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

// Drops, copies, swaps, moves or retargets one action.
void Mutate(Schedule& schedule, std::mt19937& random) {
  const auto pick = [&](std::size_t below) { return static_cast<std::size_t>(random() % below); };
  Lane& lane = schedule.lanes[pick(schedule.lanes.size())];
  Lane& other = random() % 4 == 0 ? schedule.lanes[pick(schedule.lanes.size())] : lane;
  if (lane.empty()) return;
  const std::size_t from = pick(lane.size());
  const Action action = lane[from];
  const auto erase = [&] { lane.erase(lane.begin() + static_cast<std::ptrdiff_t>(from)); };
  const auto insert = [&] {
    other.insert(other.begin() + static_cast<std::ptrdiff_t>(pick(other.size() + 1)), action);
  };
  switch (random() % 6) {
    case 0:
      return erase();
    case 1:
      return insert();
    case 2:
      return std::swap(lane[from], lane[pick(lane.size())]);
    case 3:
      erase();
      return insert();
    case 4:
      if (from + 1 < lane.size()) std::swap(lane[from], lane[from + 1]);
      return;
    default:
      Part& part = action.is_pair() && random() % 2 == 0 ? lane[from].second : lane[from].first;
      if (random() % 2 == 0) {
        part.stage =
            static_cast<std::uint16_t>(random() % static_cast<unsigned>(schedule.stages()));
      } else {
        part.microbatch = static_cast<int>(random() % static_cast<unsigned>(schedule.rows()));
      }
  }
}

TEST(Validate, AgreesWithTheSlowCheckerOnMutations) {
  std::mt19937 random(11);
  int valid = 0, invalid = 0;
  for (const char* name : {"naive", "gpipe", "1f1b", "interleaved"}) {
    for (int round = 0; round < 500; ++round) {
      Schedule schedule =
          Make(name, {1 + static_cast<int>(random() % 4), 0, 1 + static_cast<int>(random() % 5)});
      if (random() % 2 == 0) schedule = SplitBackwards(schedule);
      if (random() % 4 == 0) schedule = PairWherePossible(schedule);
      if (random() % 2 == 0) schedule = AddCommunication(schedule);
      ASSERT_TRUE(SlowlyValid(schedule)) << WriteCsv(schedule);
      for (unsigned mutations = 1 + random() % 2; mutations > 0; --mutations) {
        Mutate(schedule, random);
      }
      const bool expected = SlowlyValid(schedule);
      const auto faults = Validate(schedule);
      ASSERT_EQ(faults.empty(), expected)
          << WriteCsv(schedule) << (faults.empty() ? "" : Describe(schedule, faults.front()));
      ++(expected ? valid : invalid);
    }
  }
  EXPECT_GT(valid, 100) << "mutations that keep a schedule valid are tested too";
  EXPECT_GT(invalid, 1000);
}

}  // namespace
}  // namespace penstock
