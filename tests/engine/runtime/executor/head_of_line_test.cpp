// A late message delays only the actions that need it. The tests delay one message and expect every
// independent action to run. A runtime that receives in the order of the RECV actions stops
// earlier.
#include <gtest/gtest.h>

#include <condition_variable>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "runtime/executor/run.h"
#include "runtime/transports/threads.h"
#include "schedule/catalog.h"
#include "schedule/passes/passes.h"
#include "tests/engine/runtime/probe_stage.h"

namespace penstock {
namespace {

// A threads transport that delays one message until Open.
class GatedTransport final : public Transport {
 public:
  GatedTransport(const MessageMap& messages, int late) : inner_(messages), late_(late) {}

  void Send(int slot, std::int64_t round, Message message) override {
    inner_.Send(slot, round, std::move(message));
  }
  [[nodiscard]] bool Receive(int slot, std::int64_t round, Message& message) override {
    if (slot == late_) {
      std::unique_lock<std::mutex> lock(mutex_);
      opened_.wait(lock, [this] { return open_ || aborted(); });
    }
    return inner_.Receive(slot, round, message);
  }
  void Open() {
    const std::lock_guard<std::mutex> lock(mutex_);
    open_ = true;
    opened_.notify_all();
  }

 private:
  void WakeAll() override {
    inner_.Abort(reason());
    Open();
  }

  ThreadTransport inner_;
  const int late_;  // slot
  std::mutex mutex_;
  std::condition_variable opened_;
  bool open_ = false;
};

// The compute actions that have run, in order. Thread-safe.
class Ran {
 public:
  void Add(const Part& part) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (IsCompute(part.op)) parts_.push_back(part);
    changed_.notify_all();
  }
  // Waits until `count` actions have run and returns all that have.
  std::vector<Part> Await(std::size_t count) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return parts_.size() >= count; });
    return parts_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Part> parts_;
};

// Returns how many compute actions can run, each lane in order, while the message of slot `late`
// does not arrive. If `blocking`, a rank also waits at a RECV action whose message has not arrived.
std::size_t CountReachable(const Schedule& lowered, int late, bool blocking) {
  const MessageMap messages(lowered);
  std::set<int> sent;
  std::vector<std::size_t> position(lowered.lanes.size());
  std::size_t count = 0;
  const auto has_arrived = [&](int slot) {
    return slot < 0 || (slot != late && sent.count(slot) > 0);
  };
  const auto slot_of = [&](const Part& recv) {
    const Op op = recv.op == Op::kRecvForward ? Op::kForward : Op::kBackwardInput;
    return messages.InSlot({op, recv.stage, recv.microbatch});
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t rank = 0; rank < lowered.lanes.size(); ++rank) {
      const Lane& lane = lowered.lanes[rank];
      for (; position[rank] < lane.size(); ++position[rank], moved = true) {
        const Part& part = lane[position[rank]].first;
        const bool receives = part.op == Op::kRecvForward || part.op == Op::kRecvBackward;
        if (receives && blocking && !has_arrived(slot_of(part))) break;
        if (!IsCompute(part.op)) continue;
        if (!has_arrived(messages.InSlot(part))) break;
        if (const int slot = messages.OutSlot(part); slot >= 0) sent.insert(slot);
        ++count;
      }
    }
  }
  return count;
}

struct Keep final : Outlet {
  void Send(Message message) override { kept = std::move(message); }
  Message kept;
};

// Executes every action in order, as other runtimes do: a RECV waits for its message.
void RunBlocking(const Schedule& lowered, int rank, std::span<Stage* const> stages,
                 Transport& transport) {
  const MessageMap messages(lowered);
  std::map<int, Message> arrived;
  for (const int stage : lowered.placement.stages_of(rank)) {
    stages[stage]->BeginStep(0);
  }
  for (const Action& action : lowered.lanes[rank]) {
    const auto [op, stage, microbatch] = action.first;
    if (op == Op::kRecvForward || op == Op::kRecvBackward) {
      const Op user = op == Op::kRecvForward ? Op::kForward : Op::kBackwardInput;
      const int slot = messages.InSlot({user, stage, microbatch});
      if (!transport.Receive(slot, 0, arrived[slot])) return;
    }
    if (!IsCompute(op)) continue;
    Message input;
    if (const int slot = messages.InSlot(action.first); slot >= 0) {
      if (messages.from_rank(slot) == rank && !transport.Receive(slot, 0, input)) return;
      if (messages.from_rank(slot) != rank) input = std::move(arrived.at(slot));
    }
    Keep output;
    stages[stage]->Run({op, microbatch, std::move(input), output});
    if (const int slot = messages.OutSlot(action.first); slot >= 0) {
      transport.Send(slot, 0, std::move(output.kept));
    }
  }
}

class HeadOfLineTest : public ::testing::TestWithParam<const char*> {
 protected:
  static constexpr int kNone = -2;  // no message is late

  HeadOfLineTest() : lowered_(Lowered()), all_(CountReachable(lowered_, kNone, false)) {
    const MessageMap messages(lowered_);
    const int values = 2 * lowered_.stages() * lowered_.indices();
    std::size_t most = 0;
    for (int slot = 0; slot < values; ++slot) {
      if (messages.to_rank(slot) < 0 || messages.to_rank(slot) == messages.from_rank(slot))
        continue;
      const std::size_t free = CountReachable(lowered_, slot, false);
      const std::size_t blocking = CountReachable(lowered_, slot, true);
      EXPECT_LE(blocking, free);
      EXPECT_LT(free, all_);
      if (free - blocking < most) continue;
      most = free - blocking;
      late_ = slot;
      free_ = free;
      blocking_ = blocking;
    }
  }

  static Schedule Lowered() {
    ScheduleParams params = {.ranks = 4, .microbatches = 8};
    return AddCommunication(Generate(GetParam(), params).value());
  }

  const Schedule lowered_;
  const std::size_t all_;  // compute actions
  // The slot of the message whose delay makes the largest difference between the two runtimes, and
  // the numbers of actions that run without it.
  int late_ = kNone;
  std::size_t free_ = 0, blocking_ = 0;
};

TEST_P(HeadOfLineTest, LateMessageDelaysOnlyDependentActions) {
  Ran ran;
  Probes probes(lowered_, [&](const Part& part, std::int64_t) { ran.Add(part); });
  GatedTransport transport(MessageMap(lowered_), late_);
  RunOptions options = {.transport = &transport};
  Status status;
  std::thread runner([&] { status = RunRanks(lowered_, probes.stages, options); });
  // All other actions depend on the message.
  EXPECT_EQ(ran.Await(free_).size(), free_);
  transport.Open();
  runner.join();
  EXPECT_TRUE(status) << status.error().line();
  EXPECT_EQ(ran.Await(0).size(), all_);
}

TEST_P(HeadOfLineTest, BlockingReceivesStopEarlier) {
  EXPECT_LT(blocking_, free_);
  Ran ran;
  Probes probes(lowered_, [&](const Part& part, std::int64_t) { ran.Add(part); });
  GatedTransport transport(MessageMap(lowered_), late_);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < lowered_.ranks(); ++rank) {
    threads.emplace_back([&, rank] { RunBlocking(lowered_, rank, probes.stages, transport); });
  }
  EXPECT_EQ(ran.Await(blocking_).size(), blocking_);
  transport.Open();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(ran.Await(0).size(), all_);
  RecordProperty("late_message", MessageMap(lowered_).Describe(late_));
  RecordProperty("runs_without_it", static_cast<int>(free_));
  RecordProperty("runs_without_it_blocking", static_cast<int>(blocking_));
  RecordProperty("actions", static_cast<int>(all_));
}

INSTANTIATE_TEST_SUITE_P(Schedules, HeadOfLineTest,
                         ::testing::Values("1f1b", "interleaved", "zb-h1", "zbv", "chimera"),
                         [](const auto& schedule) {
                           std::string name = schedule.param;
                           std::erase(name, '-');
                           return name;
                         });

}  // namespace
}  // namespace penstock
