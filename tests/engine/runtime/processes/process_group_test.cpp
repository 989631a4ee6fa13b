#include "runtime/processes/process_group.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <atomic>
#include <future>

#include "runtime/processes/collectives.h"
#include "runtime/processes/local_ranks.h"
#include "runtime/processes/process_timeout.h"
#include "tests/engine/runtime/processes/on_processes.h"
#include "tests/results.h"

namespace penstock {
namespace {

TEST(ProcessTimeoutTest, TheFormerNameOfTheVariableWorks) {
  EXPECT_EQ(ProcessTimeout()->count(), 20);
  setenv("PENSTOCK_HOST_TIMEOUT", "7", /*overwrite=*/1);
  EXPECT_EQ(ProcessTimeout()->count(), 7);
  setenv("PENSTOCK_PROCESS_TIMEOUT", "soon", /*overwrite=*/1);
  EXPECT_TRUE(Contains(ProcessTimeout().error().line(), "PENSTOCK_PROCESS_TIMEOUT: 'soon'"));
  unsetenv("PENSTOCK_PROCESS_TIMEOUT");
  unsetenv("PENSTOCK_HOST_TIMEOUT");
}

TEST(LocalRanksTest, ConsecutiveRanksShareAProcess) {
  const LocalRanks middle = LocalRanks::Split(8, 3, 1).value();
  EXPECT_EQ(middle.here(), (std::vector<int>{3, 4, 5}));
  EXPECT_EQ(middle.process_of(2), 0);
  EXPECT_EQ(middle.process_of(6), 2);
  EXPECT_FALSE(middle.has_all());
  EXPECT_TRUE(LocalRanks(3).has_all());
  // Process 1 has a rank of the first plane, and two of the second.
  EXPECT_EQ(middle.OfPlane(2, 0).here(), (std::vector<int>{2}));
  EXPECT_EQ(middle.OfPlane(2, 1).here(), (std::vector<int>{1, 2}));
  EXPECT_EQ(LocalRanks::Split(2, 2, 0).value().OfPlane(2, 1).process_of(0), 1);
  EXPECT_EQ(LocalRanks::Split(2, 3, 0).error().line(), "3 processes cannot share 2 ranks");
  EXPECT_EQ(LocalRanks::Split(4, 2, 2).error().line(), "process 2: the processes are 0 to 1");
  EXPECT_EQ(LocalRanks::Of({0, 2}, 2, 0).error().line(),
            "rank 1 is on process 2: the processes are 0 to 1");
  EXPECT_EQ(LocalRanks::Of({0, 2}, 3, 0).error().line(),
            "process 1 runs no rank: start fewer processes, or give it one");
}

// Records what one end of a channel receives.
class Listener {
 public:
  explicit Listener(ProcessGroup& group) : channel_(group) {}

  void Open() {
    channel_.Open(
        [this](int from, const FrameTag& tag, const Message& message) {
          log_ += fmt::format("{}:{}:{} ", from, tag.number, TextOf(message));
          count_.fetch_add(1);
          count_.notify_all();
        },
        [this](const Error& reason) { aborted_.set_value(reason); });
  }
  void Send(int to, std::int64_t number, std::string_view text) {
    channel_.Send(to, {0, 0, number}, CopyToMessage(text));
  }
  std::string Log(int frames) {
    for (int count = count_.load(); count < frames; count = count_.load()) count_.wait(count);
    return log_;
  }
  Error AbortReason() { return aborted_.get_future().get(); }

 private:
  std::string log_;
  std::atomic<int> count_{0};
  std::promise<Error> aborted_;
  Channel channel_;
};

TEST(ProcessGroupTest, ChannelKeepsFramesUntilAProcessOpensIt) {
  const auto groups = MakeLocalProcesses(2);
  Listener first(*groups[0]), second(*groups[0]);
  first.Open();
  second.Open();
  second.Send(1, 1, "b");
  first.Send(1, 1, "a");
  second.Send(1, 2, "");
  Listener first_there(*groups[1]);
  first_there.Open();
  EXPECT_EQ(first_there.Log(1), "0:1:a ");
  Listener second_there(*groups[1]);
  second_there.Open();
  second.Send(1, 3, "c");
  EXPECT_EQ(second_there.Log(3), "0:1:b 0:2: 0:3:c ");
}

TEST(ProcessGroupTest, AbortReachesEveryChannelOfEveryProcessOnce) {
  const auto groups = MakeLocalProcesses(3);
  std::vector<std::unique_ptr<Listener>> listeners;
  for (const auto& group : groups) {
    listeners.push_back(std::make_unique<Listener>(*group));
    listeners.back()->Open();
  }
  groups[1]->Abort({ErrorCode::kNotFound, "no file"});
  groups[1]->Abort({ErrorCode::kInternal, "later"});
  for (const auto& listener : listeners) {
    const Error reason = listener->AbortReason();
    EXPECT_EQ(reason.code, ErrorCode::kNotFound);
    EXPECT_EQ(reason.line(), "no file");
  }
  Listener late(*groups[2]);
  late.Open();
  EXPECT_EQ(late.AbortReason().message, "no file");
}

TEST(ProcessGroupTest, ThrowingHandlerAbortsTheGroup) {
  const auto groups = MakeLocalProcesses(2);
  Channel throws(*groups[0]);
  throws.Open([](int, const FrameTag&, const Message&) { throw std::runtime_error("bad frame"); },
              nullptr);
  Listener other(*groups[1]);
  other.Open();
  other.Send(0, 1, "");
  EXPECT_EQ(other.AbortReason().message, "bad frame");
}

TEST(ProcessGroupTest, ProcessMayEndAfterItHasLeft) {
  auto groups = MakeLocalProcesses(3);
  Listener stays(*groups[0]);
  stays.Open();
  {
    Listener leaves(*groups[1]);
    leaves.Open();
    groups[1]->Leave();
    leaves.Send(0, 1, "bye");
  }
  groups[1].reset();
  EXPECT_EQ(stays.Log(1), "1:1:bye ");
  EXPECT_FALSE(groups[0]->aborted());
  groups[2].reset();
  EXPECT_EQ(stays.AbortReason().message,
            "process 2 is gone: it has ended or its connection is broken");
}

TEST(CollectivesTest, ClocksOfOneMachineDifferByNoMoreThanTheError) {
  const auto groups = MakeLocalProcesses(3);
  OnEachProcess(groups, [](ProcessGroup& group) {
    Collectives processes(&group);
    const ClockOffset offset = processes.MeasureClock().value();
    EXPECT_LE(std::abs(offset.ns), offset.error);
    ASSERT_TRUE(processes.All(Status()));
  });
}

}  // namespace
}  // namespace penstock
