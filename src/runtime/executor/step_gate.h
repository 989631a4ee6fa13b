// StepGate: which steps a run begins once it is asked to end early: the same ones on every rank.
#pragma once

#include <atomic>
#include <cstdint>

namespace penstock {

// A rank that begins a step commits all ranks to it. Once `stop` is set no rank begins a step that
// none has begun before, so all ranks end the run after the same step and no message is left in
// flight. Threads: any.
class StepGate {
 public:
  // `stop` may be null: nobody asks. It outlives the gate.
  explicit StepGate(const std::atomic<bool>* stop) : stop_(stop) {}

  // Whether the rank runs step `step`, counted from 0. Each rank asks for 0, 1, 2, ... in turn.
  [[nodiscard]] bool Begin(std::int64_t step) {
    if (stop_ != nullptr && stop_->load(std::memory_order_relaxed)) {
      state_.fetch_or(kClosed, std::memory_order_relaxed);
    }
    std::uint64_t seen = state_.load(std::memory_order_relaxed);
    const auto wanted = static_cast<std::uint64_t>(step) + 1;
    while (seen / kOneStep < wanted) {
      if ((seen & kClosed) != 0) return false;
      if (state_.compare_exchange_weak(seen, wanted * kOneStep, std::memory_order_relaxed)) break;
    }
    return true;
  }

  // Steps that were begun. Requires that all ranks have ended.
  std::int64_t begun() const {
    return static_cast<std::int64_t>(state_.load(std::memory_order_relaxed) / kOneStep);
  }

 private:
  static constexpr std::uint64_t kClosed = 1;
  static constexpr std::uint64_t kOneStep = 2;

  const std::atomic<bool>* stop_;
  std::atomic<std::uint64_t> state_{0};  // steps begun times kOneStep, and kClosed
};

}  // namespace penstock
