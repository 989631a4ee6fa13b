#include "runtime/hosts/host_group.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <optional>

#include "runtime/hosts/collectives.h"
#include "runtime/hosts/hosted_ranks.h"
#include "tests/runtime/hosts/on_hosts.h"

namespace penstock {
namespace {

TEST(HostedRanksTest, ConsecutiveRanksShareAHost) {
  const HostedRanks middle = HostedRanks::Split(8, 3, 1).value();
  EXPECT_EQ(middle.here(), (std::vector<int>{3, 4, 5}));
  EXPECT_EQ(middle.host_of(2), 0);
  EXPECT_EQ(middle.host_of(6), 2);
  EXPECT_FALSE(middle.has_all());
  EXPECT_TRUE(HostedRanks(3).has_all());
  EXPECT_EQ(HostedRanks::Split(2, 3, 0).error().line(), "3 hosts cannot share 2 ranks");
  EXPECT_EQ(HostedRanks::Split(4, 2, 2).error().line(), "host 2: the hosts are 0 to 1");
  EXPECT_EQ(HostedRanks::Of({0, 2}, 2, 0).error().line(),
            "rank 1 is on host 2: the hosts are 0 to 1");
  EXPECT_EQ(HostedRanks::Of({0, 2}, 3, 0).error().line(),
            "host 1 runs no rank: start fewer hosts, or give it one");
}

// Records what one end of a channel receives.
class Listener {
 public:
  explicit Listener(HostGroup& group) : channel_(group) {}

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

TEST(HostGroupTest, ChannelKeepsFramesUntilAHostOpensIt) {
  const auto groups = MakeLocalHosts(2);
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

TEST(HostGroupTest, AbortReachesEveryChannelOfEveryHostOnce) {
  const auto groups = MakeLocalHosts(3);
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

TEST(HostGroupTest, ThrowingHandlerAbortsTheGroup) {
  const auto groups = MakeLocalHosts(2);
  Channel throws(*groups[0]);
  throws.Open([](int, const FrameTag&, const Message&) { throw std::runtime_error("bad frame"); },
              nullptr);
  Listener other(*groups[1]);
  other.Open();
  other.Send(0, 1, "");
  EXPECT_EQ(other.AbortReason().message, "bad frame");
}

TEST(HostGroupTest, HostMayEndAfterItHasLeft) {
  auto groups = MakeLocalHosts(3);
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
            "host 2 is gone: its process has ended or its connection is broken");
}

TEST(CollectivesTest, ClocksOfOneMachineDifferByNoMoreThanTheError) {
  const auto groups = MakeLocalHosts(3);
  OnEachHost(groups, [](HostGroup& group) {
    Collectives hosts(&group);
    const ClockOffset offset = hosts.MeasureClock().value();
    EXPECT_LE(std::abs(offset.ns), offset.error);
    ASSERT_TRUE(hosts.All(Status()));
  });
}

}  // namespace
}  // namespace penstock
