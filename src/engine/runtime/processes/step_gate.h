// StepGate: decides which steps a run still begins after a request to stop early, the same ones on
// every rank of every process.
//
// A rank that begins a step commits all ranks to it. After a stop is requested, a process begins no
// step that none of its ranks has begun before, and announces the number of steps it has begun. The
// run ends after the largest number that any process has announced. Ranks wait before the next step
// until all processes have announced theirs, so no message is left in flight. Before a stop is
// requested, no process waits for another. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <utility>

namespace penstock {

class StepGate {
 public:
  // `stop` requests the stop. It may be null and must outlive the gate. `announce` sends the number
  // of steps begun to the `others` other processes, which pass it to ProcessClosed of their gates.
  // It is called once, by the thread that closes the gate.
  explicit StepGate(const std::atomic<bool>* stop, int others = 0,
                    std::function<void(std::int64_t begun)> announce = {})
      : stop_(stop), announce_(std::move(announce)), open_processes_(others) {}

  // Returns whether the rank runs step `step`, counted from 0. Each rank asks for 0, 1, 2, ... in
  // turn.
  [[nodiscard]] bool Begin(std::int64_t step) {
    if (stop_ != nullptr && stop_->load(std::memory_order_relaxed)) Close();
    std::uint64_t seen = state_.load(std::memory_order_relaxed);
    const auto wanted = static_cast<std::uint64_t>(step) + 1;
    while (seen / kOneStep < wanted) {
      if ((seen & kClosed) != 0 && step >= Limit()) return false;
      if (state_.compare_exchange_weak(seen, wanted * kOneStep | (seen & kClosed),
                                       std::memory_order_relaxed)) {
        break;
      }
    }
    return true;
  }

  // Acts as if a stop were requested.
  void Close() {
    const std::uint64_t before = state_.fetch_or(kClosed, std::memory_order_relaxed);
    if ((before & kClosed) != 0) return;
    const auto own = static_cast<std::int64_t>(before / kOneStep);
    if (announce_) announce_(own);
    Count(own);
  }
  // Notes that another process has closed its gate after beginning `begun` steps. Called once per
  // process.
  void ProcessClosed(std::int64_t begun) {
    std::int64_t fewest = fewest_.load(std::memory_order_relaxed);
    while (begun < fewest && !fewest_.compare_exchange_weak(fewest, begun)) {
    }
    Close();
    Count(begun);
  }
  // Ends every present and later wait. No rank begins another step.
  void Cancel() {
    most_.store(0, std::memory_order_relaxed);
    open_processes_.store(kCancelled, std::memory_order_seq_cst);
    open_processes_.notify_all();
  }

  // Returns the number of steps begun on this process. Exact once the gate is closed or all ranks
  // have ended.
  std::int64_t begun() const {
    return static_cast<std::int64_t>(state_.load(std::memory_order_relaxed) / kOneStep);
  }
  // Returns whether this process has begun a step that another one has not and, because its gate is
  // closed, begins only if its ranks ask for it.
  bool IsAhead() const { return begun() > fewest_.load(std::memory_order_relaxed); }

 private:
  static constexpr std::uint64_t kClosed = 1;
  static constexpr std::uint64_t kOneStep = 2;
  static constexpr int kCancelled = std::numeric_limits<int>::min() / 2;

  // Notes the steps that one of the processes has begun.
  void Count(std::int64_t begun) {
    std::int64_t most = most_.load(std::memory_order_relaxed);
    while (most < begun && !most_.compare_exchange_weak(most, begun)) {
    }
    open_processes_.fetch_sub(1, std::memory_order_seq_cst);
    open_processes_.notify_all();
  }
  // Waits until all processes have closed their gates, then returns the number of steps of the run.
  std::int64_t Limit() const {
    for (;;) {
      const int open = open_processes_.load(std::memory_order_seq_cst);
      if (open < 0) return open < kCancelled / 2 ? 0 : most_.load(std::memory_order_relaxed);
      open_processes_.wait(open);
    }
  }

  const std::atomic<bool>* stop_;
  const std::function<void(std::int64_t begun)> announce_;
  std::atomic<std::uint64_t> state_{0};  // steps begun times kOneStep, and kClosed
  std::atomic<std::int64_t> most_{0};    // the largest number of steps begun at a closed gate
  // The smallest number of steps begun at a closed gate of another process.
  std::atomic<std::int64_t> fewest_{std::numeric_limits<std::int64_t>::max()};
  std::atomic<int> open_processes_;  // processes whose gates are open, minus this one
};

}  // namespace penstock
