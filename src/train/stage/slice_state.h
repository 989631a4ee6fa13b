// The state of microbatches whose sequences run in slices: keys and values, and their gradients
// from later slices. It never leaves the stage. Private to train/.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "base/index.h"

namespace penstock {

class SliceState {
 public:
  // `tensors` is the number of keys and values of one slice, over all layers of the stage. Without
  // slices it is 0, and all calls have no effect.
  SliceState(int slices, int microbatches, std::size_t tensors);

  int SliceOf(int microbatch) const { return microbatch % slices_; }
  bool IsLast(int microbatch) const { return SliceOf(microbatch) == slices_ - 1; }
  std::size_t tensors() const { return tensors_; }
  // Returns how many keys and values of earlier slices this slice reads.
  std::size_t Earlier(int microbatch) const { return tensors_ * Index(SliceOf(microbatch)); }
  // Returns how many of its own keys and values get gradients from later slices.
  std::size_t Gradients(int microbatch) const { return IsLast(microbatch) ? 0 : tensors_; }

  // F: Give returns the keys and values of earlier slices, first slice first. Keep then stores
  // those of this slice.
  void Give(int microbatch, std::span<at::Tensor> to) const;
  void Keep(int microbatch, std::span<at::Tensor> own);

  // I or B: TakeGradients returns the gradients of this slice's keys and values and frees the
  // latter. AddGradients then accumulates the gradients that this slice computed for earlier
  // slices. Both return the change in allocated bytes. Later slices run first.
  std::int64_t TakeGradients(int microbatch, std::span<at::Tensor> to);
  std::int64_t AddGradients(int microbatch, std::span<at::Tensor> computed);

  // Frees everything.
  void Clear();

 private:
  struct Slot {
    std::vector<at::Tensor> own;
    std::vector<at::Tensor> gradients;
  };
  // Returns the entry of slice `slice` of the same microbatch.
  Slot& OfSlice(int microbatch, std::size_t slice) {
    return slots_[Index(microbatch - SliceOf(microbatch)) + slice];
  }

  int slices_;
  std::size_t tensors_;
  std::vector<Slot> slots_;
};

}  // namespace penstock
