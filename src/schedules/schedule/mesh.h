// Mesh: which part each rank has along each axis of parallelism, and which ranks form groups.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "base/result.h"

namespace penstock {

// Along kData and kExpert are the replicas of the pipeline; kExpert's divide the experts.
enum class Axis : std::uint8_t { kData, kExpert, kPipeline, kContext, kTensor };
inline constexpr std::size_t kAxes = 5;

// The axes, outermost first: ranks that are neighbors along the last one have consecutive numbers.
using AxisOrder = std::array<Axis, kAxes>;
// The engine's.
inline constexpr AxisOrder kReplicasOutermost = {Axis::kData, Axis::kExpert, Axis::kPipeline,
                                                 Axis::kContext, Axis::kTensor};
// That of Megatron-Core ("tp-cp-ep-dp-pp" in core/parallel_state.py, innermost first) and
// torchtitan.
inline constexpr AxisOrder kPipelineOutermost = {Axis::kPipeline, Axis::kData, Axis::kExpert,
                                                 Axis::kContext, Axis::kTensor};

class Mesh {
 public:
  // The number of parts along each axis.
  struct Sizes {
    int data = 1;    // all replicas of the pipeline
    int expert = 1;  // consecutive replicas that divide the experts
    int pipeline = 1;
    int context = 1;
    int tensor = 1;
  };

  // One rank.
  Mesh() { sizes_.fill(1); }
  // Errors: kInvalidArgument for a size below 1, if `expert` does not divide `data`, or for more
  // than 2^31-1 ranks.
  static Result<Mesh> Make(const Sizes& sizes, const AxisOrder& order = kReplicasOutermost);

  int ranks() const { return Span(order_.front()); }
  int replicas() const { return size(Axis::kData) * size(Axis::kExpert); }
  int size(Axis axis) const { return sizes_[static_cast<std::size_t>(axis)]; }
  // The distance between the numbers of two ranks that are neighbors along the axis.
  int Stride(Axis axis) const;
  // The consecutive ranks that have all places along the axis and those inside of it.
  int Span(Axis axis) const { return Stride(axis) * size(axis); }

  // The rank's place along an axis.
  int PlaceOf(int rank, Axis axis) const { return rank / Stride(axis) % size(axis); }
  // The ranks whose places differ from this one's only along `axes`, in ascending order.
  std::vector<int> GroupOf(int rank, std::initializer_list<Axis> axes) const;
  // All these groups, in the order of their first ranks.
  std::vector<std::vector<int>> Groups(std::initializer_list<Axis> axes) const;

  // The sizes in words: "2 data x 4 pipeline". Leaves out axes other than these two of size 1.
  std::string ToString() const;
  // The places of a rank along the same axes: "data 1, pipeline 3".
  std::string PlacesOf(int rank) const;

  friend bool operator==(const Mesh&, const Mesh&) = default;

 private:
  std::array<int, kAxes> sizes_;
  AxisOrder order_ = kReplicasOutermost;
};

}  // namespace penstock
