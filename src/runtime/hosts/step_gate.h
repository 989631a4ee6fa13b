// StepGate: which steps a run begins once it is asked to end early: the same ones on every rank of
// every host.
//
// A rank that begins a step commits all ranks to it. Once a stop is requested a host begins no step
// that none of its ranks has begun before, and announces how many it has begun. The run ends after
// the most that any host has announced; until all have, its ranks wait before the next step. So no
// message is left in flight, and before a stop is requested no host waits for another.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <utility>

namespace penstock {

class StepGate {
 public:
  // `stop` requests the stop; it may be null and outlives the gate. `announce` sends the number of
  // steps begun to the `others` other hosts, which pass it to their gates' HostClosed; it is called
  // once, by the thread that closes the gate.
  explicit StepGate(const std::atomic<bool>* stop, int others = 0,
                    std::function<void(std::int64_t begun)> announce = {})
      : stop_(stop), announce_(std::move(announce)), open_hosts_(others) {}

  // Whether the rank runs step `step`, counted from 0. Each rank asks for 0, 1, 2, ... in turn.
  // Threads: any.
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

  // As if a stop were requested. Any thread.
  void Close() {
    const std::uint64_t before = state_.fetch_or(kClosed, std::memory_order_relaxed);
    if ((before & kClosed) != 0) return;
    const auto own = static_cast<std::int64_t>(before / kOneStep);
    if (announce_) announce_(own);
    Count(own);
  }
  // Another host has closed its gate and has begun so many steps. Any thread, once for each host.
  void HostClosed(std::int64_t begun) {
    Close();
    Count(begun);
  }
  // Ends every wait, now and later: no rank begins another step. Any thread.
  void Cancel() {
    most_.store(0, std::memory_order_relaxed);
    open_hosts_.store(kCancelled, std::memory_order_seq_cst);
    open_hosts_.notify_all();
  }

  // Steps that were begun here. Exact once the gate is closed or all ranks have ended.
  std::int64_t begun() const {
    return static_cast<std::int64_t>(state_.load(std::memory_order_relaxed) / kOneStep);
  }

 private:
  static constexpr std::uint64_t kClosed = 1;
  static constexpr std::uint64_t kOneStep = 2;
  static constexpr int kCancelled = std::numeric_limits<int>::min() / 2;

  // Notes what one of the hosts has begun.
  void Count(std::int64_t begun) {
    std::int64_t most = most_.load(std::memory_order_relaxed);
    while (most < begun && !most_.compare_exchange_weak(most, begun)) {
    }
    open_hosts_.fetch_sub(1, std::memory_order_seq_cst);
    open_hosts_.notify_all();
  }
  // Waits until all hosts have closed their gates; then the steps that the run has.
  std::int64_t Limit() const {
    for (;;) {
      const int open = open_hosts_.load(std::memory_order_seq_cst);
      if (open < 0) return open < kCancelled / 2 ? 0 : most_.load(std::memory_order_relaxed);
      open_hosts_.wait(open);
    }
  }

  const std::atomic<bool>* stop_;
  const std::function<void(std::int64_t begun)> announce_;
  std::atomic<std::uint64_t> state_{0};  // steps begun times kOneStep, and kClosed
  std::atomic<std::int64_t> most_{0};    // steps that a closed gate has begun
  std::atomic<int> open_hosts_;          // hosts whose gates are open, less this one
};

}  // namespace penstock
