// CSV files that torch wrote (dump_torch_csv.py) load, and the validator agrees with torch.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>

#include "schedule/catalog.h"
#include "schedule/passes/passes.h"
#include "schedule/text/text.h"
#include "schedule/validate/validate.h"
#include "simulate/simulate.h"
#include "tests/results.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

// Parsed file name: SCHEDULE_pP_vV_mM[_tuned], with .comms for lowered schedules.
struct TorchFile {
  std::string path, schedule;
  int ranks = 0, chunks = 0, microbatches = 0;
  bool lowered = false;
  bool waits = false;  // torch 2.15: messages and reductions are waited for
  bool tuned = false;  // and at most two messages of a rank are in flight
};

std::vector<TorchFile> TorchFiles() {
  std::vector<TorchFile> files;
  for (const bool waits : {false, true}) {
    const char* const folder = waits ? "/torch_csv_2.15" : "/torch_csv";
    for (const auto& entry : fs::directory_iterator(std::string(PENSTOCK_INTEROP) + folder)) {
      TorchFile file;
      file.path = entry.path().string();
      const std::string name = entry.path().stem().string();
      const std::size_t end = name.find('_');
      file.schedule = name.substr(0, end);
      file.lowered = name.find(".comms") != std::string::npos;
      file.waits = waits && file.lowered;
      file.tuned = name.find("_tuned") != std::string::npos;
      EXPECT_EQ(std::sscanf(name.c_str() + end, "_p%d_v%d_m%d", &file.ranks, &file.chunks,
                            &file.microbatches),
                3)
          << name;
      files.push_back(std::move(file));
    }
  }
  return files;
}

std::vector<Lane> ComputeOnly(const Schedule& schedule) {
  std::vector<Lane> lanes;
  for (const Lane& lane : schedule.lanes) {
    std::copy_if(lane.begin(), lane.end(), std::back_inserter(lanes.emplace_back()),
                 [](const Action& action) { return IsCompute(action); });
  }
  return lanes;
}

double Makespan(const Schedule& schedule) {
  const auto result = Simulate(schedule, Costs::Uniform(schedule.placement, 1, 3, 2, 4, 0.5));
  EXPECT_TRUE(result) << result.error().line();
  return result ? result->makespan : -1;
}

TEST(TorchCsv, EveryScheduleOfTorchLoadsAndIsValid) {
  std::map<std::string, int> seen;
  for (const TorchFile& file : TorchFiles()) {
    SCOPED_TRACE(file.path);
    const auto schedule = ValueOf(LoadSchedule(file.path));
    ++seen[file.schedule];
    EXPECT_EQ(schedule.ranks(), file.ranks);
    EXPECT_EQ(schedule.placement.chunks(), file.chunks);
    if (file.schedule == "1F1B") continue;  // see FindsTheFaultInTorchs1f1bTable
    EXPECT_EQ(schedule.microbatches, file.microbatches);
    const auto faults = Validate(schedule);
    EXPECT_TRUE(faults.empty()) << Describe(schedule, faults.front());
    EXPECT_TRUE(RequireTorchOps(schedule));
    const auto back = ParseCsv(WriteCsv(schedule));
    ASSERT_TRUE(back);
    EXPECT_EQ(back->lanes, schedule.lanes);
  }
  for (const char* name : {"GPipe", "1F1B", "LoopedBFS", "Interleaved1F1B", "InterleavedZeroBubble",
                           "ZBVZeroBubble", "DualPipeV"}) {
    EXPECT_GE(seen[name], 2) << name;
  }
}

TEST(TorchCsv, LoweringByTorchChangesNeitherOrderNorMakespan) {
  int pairs = 0;
  for (const TorchFile& file : TorchFiles()) {
    if (!file.lowered) continue;
    SCOPED_TRACE(file.path);
    std::string plain = file.path;
    plain.replace(plain.rfind(".comms"), 6, "");
    const auto lowered = LoadSchedule(file.path);
    const auto compute = LoadSchedule(plain);
    ASSERT_TRUE(lowered && compute);
    EXPECT_EQ(ComputeOnly(*lowered), compute->lanes);
    EXPECT_EQ(Makespan(file.tuned ? WithoutWaits(*lowered) : *lowered), Makespan(*compute));
    ++pairs;
  }
  EXPECT_GE(pairs, 20);
}

// What torch 2.15 writes has a wait for each SEND and REDUCE_GRAD. With our waits instead, no more
// messages are in flight, and no rank waits longer.
TEST(TorchCsv, WaitsOfTorchAreReadAndOursAreNoWorse) {
  int files = 0;
  for (const TorchFile& file : TorchFiles()) {
    if (!file.waits) continue;
    SCOPED_TRACE(file.path);
    const auto theirs = ValueOf(LoadSchedule(file.path));
    ASSERT_TRUE(HasWaitSend(theirs));
    const Schedule bare = WithoutWaits(theirs);
    ASSERT_NE(bare.lanes, theirs.lanes);
    const std::optional<int> budget = file.tuned ? std::optional(2) : std::nullopt;
    const Schedule ours = AddReductionWaits(ValueOf(AddWaitSends(bare, {budget})), file.tuned);
    EXPECT_TRUE(Validate(ours).empty());
    EXPECT_EQ(ours.action_count(), theirs.action_count());
    EXPECT_LE(Makespan(ours), Makespan(theirs));
    ++files;
  }
  EXPECT_EQ(files, 10);
}

std::vector<Lane> Gathers(const Schedule& schedule) {
  std::vector<Lane> lanes;
  for (const Lane& lane : schedule.lanes) {
    std::ranges::copy_if(lane, std::back_inserter(lanes.emplace_back()), [](const Action& action) {
      return IsCompute(action) || action.first.op == Op::kUnshard;
    });
  }
  return lanes;
}

// torch keeps three stages unsharded, and gathers min(rank + 2, 3) early with "auto". Except for
// pairs, for which it may gather one more stage.
TEST(TorchCsv, StaggeredUnshardsAreThoseOfTorch) {
  int files = 0;
  for (const TorchFile& file : TorchFiles()) {
    if (!file.tuned || !file.lowered || file.schedule == "DualPipeV") continue;
    SCOPED_TRACE(file.path);
    const auto theirs = ValueOf(LoadSchedule(file.path));
    Schedule compute = theirs;
    compute.lanes = ComputeOnly(theirs);
    const auto ours = AddSharding(compute, {.residency = 2, .lookahead_by_rank = true});
    EXPECT_EQ(Gathers(ValueOf(ours)), Gathers(theirs));
    ++files;
  }
  EXPECT_EQ(files, 4);
}

// Earlier versions of torch leave the last stages of a rank unsharded.
TEST(TorchCsv, StagesThatStayUnshardedAreValid) {
  int files = 0;
  for (const TorchFile& file : TorchFiles()) {
    if (!file.lowered) continue;
    SCOPED_TRACE(file.path);
    const auto whole = ValueOf(LoadSchedule(file.path));
    Schedule schedule = whole;
    for (Lane& lane : schedule.lanes) {
      const auto last = std::find_if(lane.rbegin(), lane.rend(),
                                     [](const Action& action) { return IsCompute(action); });
      lane.erase(
          std::remove_if(last.base(), lane.end(),
                         [](const Action& action) { return action.first.op == Op::kReshard; }),
          lane.end());
    }
    ASSERT_NE(schedule.lanes, whole.lanes);
    EXPECT_TRUE(Validate(schedule).empty());
    EXPECT_EQ(ValueOf(ParseCsv(WriteCsv(schedule))).lanes, schedule.lanes);
    EXPECT_EQ(Makespan(schedule), Makespan(whole));
    const Schedule freed = ValueOf(AddSharding(schedule));
    for (std::size_t rank = 0; rank < freed.lanes.size(); ++rank) {
      const auto resharded = [](const Action& action) { return action.first.op == Op::kReshard; };
      EXPECT_EQ(std::ranges::count_if(freed.lanes[rank], resharded),
                std::ranges::count_if(whole.lanes[rank], resharded));
    }
    ++files;
  }
  EXPECT_GE(files, 20);
}

// torch does not execute this table of its 1F1B, whose last rank starts with microbatch 1.
TEST(TorchCsv, FindsTheFaultInTorchs1f1bTable) {
  int files = 0;
  for (const TorchFile& file : TorchFiles()) {
    if (file.schedule != "1F1B") continue;
    const auto schedule = ValueOf(LoadSchedule(file.path, {.microbatches = file.microbatches}));
    const auto faults = Validate(schedule);
    ASSERT_FALSE(faults.empty()) << file.path;
    EXPECT_TRUE(std::all_of(faults.begin(), faults.end(), [&](const Fault& fault) {
      return fault.rank == file.ranks - 1;
    })) << Describe(schedule, faults.front());
    ++files;
  }
  EXPECT_GE(files, 2);
}

// For algorithms that both implement, the files are equal action by action.
TEST(TorchCsv, SameAlgorithmGivesTheSameActions) {
  int same = 0;
  for (const TorchFile& file : TorchFiles()) {
    const bool shared = file.schedule == "LoopedBFS" || file.schedule == "Interleaved1F1B";
    if (!shared || file.lowered) continue;
    SCOPED_TRACE(file.path);
    const auto theirs = LoadSchedule(file.path);
    ASSERT_TRUE(theirs);
    ScheduleParams params = {
        .ranks = file.ranks, .chunks = file.chunks, .microbatches = file.microbatches};
    const auto ours = ValueOf(Generate(file.schedule, params));
    EXPECT_EQ(WriteCsv(ours), WriteCsv(*theirs));
    ++same;
  }
  EXPECT_GE(same, 8);
}

}  // namespace
}  // namespace penstock
