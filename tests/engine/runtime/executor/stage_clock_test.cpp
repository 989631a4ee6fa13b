#include <gtest/gtest.h>

#include "runtime/executor/run.h"
#include "tests/engine/runtime/probe_stage.h"
#include "tests/engine/runtime/random_schedule.h"

namespace penstock {
namespace {

// The clock of one rank, which counts messages instead of telling the time.
struct MessageClock final : StageClock {
  void Begin(std::size_t) override {}
  void Mark(std::size_t) override { awaited_at_mark = awaited; }
  std::int64_t At(std::size_t) const override { return 0; }

  int awaited = 0, awaited_at_mark = 0, taken = 0;
};

// Fails if an action has a message for which the device did not wait before the last mark.
class ClockedStage final : public ProbeStage {
 public:
  ClockedStage(const Placement& placement, int stage, ProbeLog* log, MessageClock* clock)
      : ProbeStage(placement, stage, log, nullptr), clock_(clock) {}

  StageClock* clock() override { return clock_; }
  void AwaitInput(Message& input) override { clock_->awaited += input.empty() ? 0 : 1; }
  void Forward(int microbatch, Message input, Outlet& output) override {
    Take(input);
    ProbeStage::Forward(microbatch, std::move(input), output);
  }
  void Backward(int microbatch, Message gradient, Outlet& output) override {
    Take(gradient);
    ProbeStage::Backward(microbatch, std::move(gradient), output);
  }
  void BackwardInput(int microbatch, Message gradient, Outlet& output) override {
    Take(gradient);
    ProbeStage::BackwardInput(microbatch, std::move(gradient), output);
  }

 private:
  void Take(const Message& message) {
    if (message.empty()) return;
    if (++clock_->taken > clock_->awaited_at_mark) {
      throw std::runtime_error("the wait for a message is part of the action");
    }
  }

  MessageClock* clock_;
};

TEST(StageClock, WaitsForMessagesAreNotPartOfActions) {
  Random random(13);
  for (int i = 0; i < 50; ++i) {
    const Schedule schedule = RandomSchedule(random);
    std::vector<MessageClock> clocks(Index(schedule.ranks()));
    std::vector<ProbeLog> logs(Index(schedule.ranks()));
    std::vector<std::unique_ptr<ClockedStage>> owned;
    std::vector<Stage*> stages;
    for (int stage = 0; stage < schedule.stages(); ++stage) {
      const std::size_t rank = schedule.placement.rank_of(stage);
      owned.push_back(
          std::make_unique<ClockedStage>(schedule.placement, stage, &logs[rank], &clocks[rank]));
      stages.push_back(owned.back().get());
    }
    const Status status = RunRanks(schedule, stages, {.steps = 2});
    ASSERT_TRUE(status) << status.error().line();
    for (const MessageClock& clock : clocks) EXPECT_EQ(clock.awaited, clock.taken);
  }
}

}  // namespace
}  // namespace penstock
