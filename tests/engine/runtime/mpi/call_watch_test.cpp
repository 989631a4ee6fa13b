#include "runtime/mpi/call_watch.h"

#include <gtest/gtest.h>

#include <future>
#include <memory>

namespace penstock {
namespace {

TEST(CallWatchTest, NoticesACallThatDoesNotReturn) {
  for (unsigned start = 0; start < 2 * CallWatch::kPeriods; ++start) {
    CallWatch watch(std::chrono::seconds(1), nullptr);
    for (unsigned i = 0; i < start; ++i) EXPECT_TRUE(watch.BeginPeriod());
    auto stuck = std::make_unique<CallWatch::Call>(watch);
    for (unsigned period = 1; period < CallWatch::kPeriods; ++period) {
      const CallWatch::Call other(watch);  // of a thread that is not stuck
      EXPECT_TRUE(watch.BeginPeriod()) << period;
    }
    EXPECT_FALSE(watch.BeginPeriod());
    stuck.reset();
    EXPECT_TRUE(watch.BeginPeriod());
  }
}

TEST(CallWatchTest, ManyCallsAreNotOneThatIsStuck) {
  CallWatch watch(std::chrono::seconds(1), nullptr);
  auto before = std::make_unique<CallWatch::Call>(watch);
  for (int period = 0; period < 100; ++period) {
    auto next = std::make_unique<CallWatch::Call>(watch);  // there is always one in flight
    before = std::move(next);
    EXPECT_TRUE(watch.BeginPeriod());
  }
}

TEST(CallWatchTest, ReportsOnAThreadOfItsOwn) {
  std::promise<std::thread::id> reported;
  CallWatch watch(std::chrono::milliseconds(30),
                  [&] { reported.set_value(std::this_thread::get_id()); });
  const CallWatch::Call stuck(watch);
  EXPECT_NE(reported.get_future().get(), std::this_thread::get_id());
}

}  // namespace
}  // namespace penstock
