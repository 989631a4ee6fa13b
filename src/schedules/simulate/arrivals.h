// The simulator's table of times: one slot for each value that a stage produces for a microbatch
// index.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>

#include "base/index.h"
#include "schedule/deps.h"

namespace penstock {

// The time when the rank that needs a value can use it, by stage, microbatch index and kind. Within
// the rank that computed it, only whether it is computed matters: a lane's clock is never earlier
// than the values that the lane has computed.
class Arrivals {
 public:
  using Key = std::size_t;

  // The content of a slot while no other rank can use the value. Arrivals are at least 0.
  static constexpr double kNotComputed = -1;
  static constexpr double kNotSent = -2;  // computed, but its SEND has not run

  Arrivals(std::size_t stages, std::size_t indices);
  void Clear();  // sets every value to kNotComputed

  Key KeyOf(ValueKind kind, std::size_t stage, std::size_t microbatch) const {
    return stage * stride_ + 2 * microbatch + Index(kind);
  }
  ValueKind KindOf(Key key) const { return static_cast<ValueKind>(key % 2); }
  std::size_t StageOf(Key key) const { return key / stride_; }
  std::size_t MicrobatchOf(Key key) const { return key % stride_ / 2; }

  // Fetches the slots that a stage will write a few microbatch indices later.
  void Prefetch(Key key) const {
    constexpr std::size_t kAhead = 8;
    __builtin_prefetch(slots_.get() + key + 2 * kAhead, 1);
  }

  double& operator[](Key key) { return slots_[key]; }
  double operator[](Key key) const { return slots_[key]; }

 private:
  struct Free {
    void operator()(double* memory) const { std::free(memory); }
  };
  std::size_t stride_;
  std::size_t size_;
  std::unique_ptr<double[], Free> slots_;
};

}  // namespace penstock
