// Two processes share stores over their frames.
#include "train/c10d/frame_stores.h"

#include <gtest/gtest.h>

#include <thread>

#include "base/index.h"
#include "tests/engine/runtime/processes/local_processes.h"

namespace penstock {
namespace {

using StoredValue = std::vector<std::uint8_t>;

class FrameStoresTest : public ::testing::Test {
 protected:
  c10::intrusive_ptr<c10d::Store> Of(int process, int other) const {
    return stores_[Index(process)]->With(other);
  }

  const std::vector<std::unique_ptr<ProcessGroup>> groups_ = MakeLocalProcesses(3);
  const std::vector<std::unique_ptr<FrameStores>> stores_ = [this] {
    std::vector<std::unique_ptr<FrameStores>> stores;
    for (const auto& group : groups_) stores.push_back(std::make_unique<FrameStores>(*group));
    return stores;
  }();
};

TEST_F(FrameStoresTest, EachProcessSeesWhatTheOtherOneSets) {
  std::thread sets([&] { Of(0, 1)->set("id", StoredValue{1, 2, 3}); });
  EXPECT_EQ(Of(1, 0)->get("id"), (StoredValue{1, 2, 3}));
  sets.join();
  EXPECT_EQ(Of(0, 1)->get("id"), (StoredValue{1, 2, 3}));
  EXPECT_FALSE(Of(2, 0)->check({"id"})) << "a store of other processes";
  Of(0, 1)->append("list", StoredValue{1});
  Of(0, 1)->multiSet({"a", "b"}, {StoredValue{1}, StoredValue{2}});
  EXPECT_EQ(Of(1, 0)->multiGet({"list", "a", "b"}), (std::vector<StoredValue>{{1}, {1}, {2}}));
}

TEST_F(FrameStoresTest, BothAddToOneSum) {
  Of(0, 1)->add("arrived", 1);
  Of(1, 0)->add("arrived", 1);
  Of(1, 0)->set("added", StoredValue{});
  Of(0, 1)->wait({"added"});
  EXPECT_EQ(Of(0, 1)->add("arrived", 0), 2);
}

TEST_F(FrameStoresTest, AWaitEndsWithTheRun) {
  std::thread aborts([&] { groups_[0]->Abort({ErrorCode::kUnavailable, "the disk is gone"}); });
  EXPECT_ANY_THROW(Of(1, 0)->get("never"));
  aborts.join();
  EXPECT_ANY_THROW(Of(2, 0)->wait({"never"}, std::chrono::milliseconds(5)));
}

}  // namespace
}  // namespace penstock
