// The simulator's table of times: one slot for each value that a stage makes of a row.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>

#include "base/index.h"
#include "schedule/deps.h"

namespace penstock {

// When a value can be used by the rank that needs it, by stage, row and kind. In the rank that made
// it only whether it is made matters: a lane's clock never runs behind what the lane has made.
class Arrivals {
 public:
  using Key = std::size_t;

  // What a slot holds when no other rank can use the value yet. Arrivals are at least 0.
  static constexpr double kNotMade = -1;
  static constexpr double kNotSent = -2;  // made, but its SEND is still to come

  Arrivals(std::size_t stages, std::size_t rows);
  void Clear();  // every value is kNotMade

  Key KeyOf(ValueKind kind, std::size_t stage, std::size_t row) const {
    return stage * stride_ + 2 * row + Index(kind);
  }
  ValueKind KindOf(Key key) const { return static_cast<ValueKind>(key % 2); }
  std::size_t StageOf(Key key) const { return key / stride_; }
  std::size_t RowOf(Key key) const { return key % stride_ / 2; }

  // Fetches what a stage will write some rows later.
  void Prefetch(Key key) const {
    constexpr std::size_t kRowsAhead = 8;
    __builtin_prefetch(slots_.get() + key + 2 * kRowsAhead, 1);
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
