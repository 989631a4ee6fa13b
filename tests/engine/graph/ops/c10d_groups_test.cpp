#include "graph/ops/c10d_groups.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace penstock {
namespace {

using namespace std::chrono_literals;

// A collective that ends when the test says so.
class HeldWork final : public c10d::Work {
 public:
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }
  bool isCompleted() override { return future_->completed(); }
  bool wait(std::chrono::milliseconds /*timeout*/) override {
    if (fails_) throw std::runtime_error("Connection closed by peer\nat pair.cc");
    return true;
  }

  void End(bool fails = false) {
    fails_ = fails;
    future_->markCompleted(c10::IValue());
  }

 private:
  const c10::intrusive_ptr<c10::ivalue::Future> future_ =
      c10::make_intrusive<c10::ivalue::Future>(c10::NoneType::get());
  bool fails_ = false;
};

// Returns the error of a wait, "" without one.
std::string ErrorOf(C10dRun& run, const c10::intrusive_ptr<HeldWork>& work) {
  try {
    run.Wait(work);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "";
}

TEST(C10dRun, WaitsUntilTheWorkIsDone) {
  C10dRun run(1s, nullptr);
  const auto work = c10::make_intrusive<HeldWork>();
  std::thread other([&] { work->End(); });
  EXPECT_EQ(ErrorOf(run, work), "");
  other.join();
  EXPECT_EQ(ErrorOf(run, work), "");
}

TEST(C10dRun, AnAbortEndsWaitsWithTheFirstReason) {
  std::vector<std::string> reasons;
  C10dRun run(1s, [&](const Error& reason) { reasons.push_back(reason.line()); });
  const auto work = c10::make_intrusive<HeldWork>();
  std::thread other([&] {
    run.Abort({ErrorCode::kUnavailable, "rank 1 failed"});
    run.Abort({ErrorCode::kUnavailable, "rank 0 failed, too"});
  });
  EXPECT_EQ(ErrorOf(run, work), "rank 1 failed");
  other.join();
  EXPECT_EQ(ErrorOf(run, c10::make_intrusive<HeldWork>()), "rank 1 failed");
  EXPECT_EQ(reasons, std::vector<std::string>{"rank 1 failed"});
  work->End();  // c10d ends it when it likes
}

TEST(C10dRun, AFailedWorkSaysWhyTheRunHasEnded) {
  C10dRun run(1s, nullptr);
  const auto work = c10::make_intrusive<HeldWork>();
  work->End(/*fails=*/true);
  EXPECT_EQ(ErrorOf(run, work), "a collective failed: Connection closed by peer");
  std::thread other([&] { run.Abort({ErrorCode::kUnavailable, "process 3 is gone"}); });
  EXPECT_EQ(ErrorOf(run, work), "process 3 is gone");
  other.join();
}

}  // namespace
}  // namespace penstock
