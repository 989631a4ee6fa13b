#include "runtime/executor/executor.h"

#include <gtest/gtest.h>

#include <map>
#include <optional>

#include "runtime/transports/threads.h"
#include "tests/engine/runtime/count_allocations.h"
#include "tests/engine/runtime/empty_stage.h"
#include "tests/engine/runtime/probe_stage.h"
#include "tests/engine/runtime/random_schedule.h"
#include "tests/results.h"

namespace penstock {
namespace {

// Everything that the executors of one schedule need.
struct Bench {
  explicit Bench(Schedule s)
      : schedule(std::move(s)),
        transport(MessageMap(schedule)),
        trace(Trace::Make(schedule, 4).value()) {}

  Result<std::unique_ptr<Executor>> Bind(int rank, std::span<Stage* const> stages) {
    binding.emplace(Binding{schedule, stages, transport, trace, options});
    return Executor::Bind(*binding, rank, {});
  }

  Schedule schedule;
  ThreadTransport transport;
  Trace trace;
  RunOptions options;
  std::optional<Binding> binding;  // of the last executor
};

// One rank holds every stage, so that one thread runs the whole loop.
Schedule OneRankOfMany(Random& random) {
  return RandomSchedule(random, {.max_ranks = 1, .max_stages_per_rank = 6, .max_microbatches = 12});
}

TEST(ExecutorTest, LoopAllocatesNoMemory) {
  Random random(3);
  for (int i = 0; i < 20; ++i) {
    Bench bench(OneRankOfMany(random));
    EmptyStage stage;
    const std::vector<Stage*> stages(bench.schedule.stages(), &stage);
    const auto executor = bench.Bind(0, stages).value();
    const std::int64_t before = AllocationsOfThisThread();
    for (int round = 0; round < 5; ++round) ASSERT_TRUE(executor->RunStep(round, round));
    EXPECT_EQ(AllocationsOfThisThread(), before);
  }
}

TEST(ExecutorTest, ReportsWhatItWaitsForAndStopsWhenAborted) {
  Bench bench(SmallGpipe(2, 2));
  Probes probes(bench.schedule);
  const auto executor = bench.Bind(1, probes.stages).value();
  bench.transport.Abort({ErrorCode::kUnavailable, "over"});
  EXPECT_FALSE(executor->RunStep(0, 0));
  EXPECT_EQ(executor->CurrentAction(), "1F0");
  EXPECT_EQ(executor->Doing(),
            "waits at 1F0 for the activation of stage 0, microbatch 0, from rank 0");
  EXPECT_TRUE(probes.logs[1].calls.empty());
}

// Stores messages. Receive fails for a message that was not sent.
class Shelf final : public Transport {
 public:
  void Send(int slot, std::int64_t, Message message) override { kept_[slot] = std::move(message); }
  bool Receive(int slot, std::int64_t, Message& message) override {
    if (kept_.count(slot) == 0) return false;
    message = std::move(kept_[slot]);
    return true;
  }
  bool Has(int slot) const { return kept_.count(slot) > 0; }

 private:
  void WakeAll() override {}
  std::map<int, Message> kept_;
};

TEST(ExecutorTest, PairWaitsForBothMessages) {
  Schedule schedule = SmallGpipe(3, 2);
  schedule.lanes[1] = {Forward(1, 0), Overlap(Forward(1, 1), Backward(1, 0)), Backward(1, 1)};
  const MessageMap messages(schedule);
  const auto arrives = [&](Shelf& shelf, ValueKind kind, int stage, int microbatch) {
    shelf.Send(messages.Slot({kind, stage, microbatch}), 0,
               MakePayload(kind, stage, microbatch, 0));
  };
  for (const bool forward_is_late : {true, false}) {
    Probes probes(schedule);
    Trace trace = Trace::Make(schedule, 1).value();
    Shelf shelf;
    const RunOptions options;
    const Binding binding{schedule, probes.stages, shelf, trace, options};
    const auto executor = Executor::Bind(binding, 1, {}).value();
    arrives(shelf, ValueKind::kActivation, 0, 0);
    if (!forward_is_late) arrives(shelf, ValueKind::kActivation, 0, 1);
    if (forward_is_late) arrives(shelf, ValueKind::kGradient, 2, 0);
    EXPECT_FALSE(executor->RunStep(0, 0));
    EXPECT_EQ(probes.logs[1].calls, std::vector<Part>{Forward(1, 0).first});
    EXPECT_EQ(executor->CurrentAction(), "(1F1;1B0)OVERLAP_F_B");
    EXPECT_EQ(executor->Doing(), forward_is_late
                                     ? "waits at (1F1;1B0)OVERLAP_F_B for the activation of stage "
                                       "0, microbatch 1, from rank 0"
                                     : "waits at (1F1;1B0)OVERLAP_F_B for the input gradient of "
                                       "stage 2, microbatch 0, from rank 2");
  }
}

// A stage that runs the parts of a pair in turn sends the first output before the second part
// begins.
TEST(ExecutorTest, PairSendsEachOutputOnceItIsComputed) {
  Schedule schedule = SmallGpipe(3, 2);
  schedule.lanes[1] = {Forward(1, 0), Overlap(Forward(1, 1), Backward(1, 0)), Backward(1, 1)};
  const MessageMap messages(schedule);
  Shelf shelf;
  bool was_there = false;
  Probes probes(schedule, [&](const Part& part, std::int64_t) {
    if (part != Backward(1, 0).first) return;
    was_there = shelf.Has(messages.OutSlot(Forward(1, 1).first));
    EXPECT_FALSE(shelf.Has(messages.OutSlot(part)));
  });
  for (int microbatch = 0; microbatch < 2; ++microbatch) {
    for (const auto& [kind, stage] :
         {std::pair(ValueKind::kActivation, 0), std::pair(ValueKind::kGradient, 2)}) {
      shelf.Send(messages.Slot({kind, stage, microbatch}), 0,
                 MakePayload(kind, stage, microbatch, 0));
    }
  }
  Trace trace = Trace::Make(schedule, 1).value();
  const RunOptions options;
  const Binding binding{schedule, probes.stages, shelf, trace, options};
  const auto executor = Executor::Bind(binding, 1, {}).value();
  ASSERT_TRUE(executor->RunStep(0, 0));
  EXPECT_TRUE(was_there);
  EXPECT_TRUE(shelf.Has(messages.OutSlot(Backward(1, 0).first)));
}

TEST(ExecutorTest, RefusesToBindWithoutItsStages) {
  Bench bench(SmallGpipe(2, 1));
  Probes probes(bench.schedule);
  probes.stages[1] = nullptr;
  EXPECT_TRUE(bench.Bind(0, probes.stages));  // another rank's stage may be on another process
  EXPECT_TRUE(Refused(bench.Bind(1, probes.stages), "", ErrorCode::kInvalidArgument));
}

TEST(ExecutorTest, RefusesActionsThatAStageDoesNotSupport) {
  Bench offload(SmallGpipe(1, 1));
  offload.schedule.lanes[0].insert(offload.schedule.lanes[0].begin() + 1,
                                   MakeAction(Op::kOffload, 0, 0));
  Bench stashed(SmallGpipe(1, 1));
  stashed.schedule.weights = WeightPolicy::kStashed;
  for (Bench* bench : {&offload, &stashed}) {
    Probes probes(bench->schedule);
    EXPECT_TRUE(Refused(bench->Bind(0, probes.stages), "", ErrorCode::kInvalidArgument));
  }
  Probes probes(offload.schedule);
  EXPECT_EQ(offload.Bind(0, probes.stages).error().line(),
            "rank 0, action 1 (0OFFLOAD0): the stage does not run OFFLOAD");
}

TEST(ExecutorTest, StageThatDoesNotSendExactlyOnceThrowsInternalError) {
  struct Silent final : Stage {
    explicit Silent(int sends) : sends_(sends) {}
    void BeginStep(std::int64_t) override {}
    void Forward(int, Message, Outlet& output) override {
      for (int i = 0; i < sends_; ++i) output.Send(Message());
    }
    void Backward(int, Message, Outlet&) override {}
    void BackwardInput(int, Message, Outlet&) override {}
    void BackwardWeight(int) override {}
    void Step() override {}
    std::int64_t ActivationBytes() const override { return 0; }
    int sends_;
  };
  for (const int sends : {0, 2}) {
    Bench bench(SmallGpipe(2, 1));
    Silent silent(sends);
    const std::vector<Stage*> stages(2, &silent);
    const auto executor = bench.Bind(0, stages).value();
    EXPECT_THROW(static_cast<void>(executor->RunStep(0, 0)), InternalError) << sends;
  }
}

}  // namespace
}  // namespace penstock
