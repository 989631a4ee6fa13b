// SliceState: the keys and values of microbatches that run in sequence slices, and the gradients of
// those from later slices. They never leave the stage. Private to train/.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "base/index.h"

namespace penstock {

class SliceState {
 public:
  // `tensors` is the number of keys and values of one slice over all layers of the stage. It is 0
  // without slices, and no call has an effect then.
  SliceState(int slices, int microbatches, std::size_t tensors);

  int SliceOf(int microbatch) const { return microbatch % slices_; }
  bool IsLast(int microbatch) const { return SliceOf(microbatch) == slices_ - 1; }
  std::size_t tensors() const { return tensors_; }
  // Returns the number of keys and values of earlier slices that this slice reads.
  std::size_t Earlier(int microbatch) const { return tensors_ * Index(SliceOf(microbatch)); }
  // Returns the number of its own keys and values that receive gradients from later slices.
  std::size_t Gradients(int microbatch) const { return IsLast(microbatch) ? 0 : tensors_; }

  // For F. ReadEarlier copies references to the keys and values of earlier slices to `to`, in the
  // order of the slices. Store then moves this slice's out of `own`.
  void ReadEarlier(int microbatch, std::span<at::Tensor> to) const;
  void Store(int microbatch, std::span<at::Tensor> own);

  // For I and B. TakeGradients frees this slice's keys and values and moves their gradients to
  // `to`. AddGradients then accumulates the gradients that this slice computed for earlier slices.
  // Both return the change in allocated bytes. Requires: the backwards of later slices have run.
  std::int64_t TakeGradients(int microbatch, std::span<at::Tensor> to);
  std::int64_t AddGradients(int microbatch, std::span<at::Tensor> computed);

  // Frees all tensors.
  void Clear();

 private:
  struct Slot {
    std::vector<at::Tensor> own;
    std::vector<at::Tensor> gradients;
  };
  // Returns the slot of slice `slice` of the same microbatch.
  Slot& OfSlice(int microbatch, std::size_t slice) {
    return slots_[Index(microbatch - SliceOf(microbatch)) + slice];
  }

  int slices_;
  std::size_t tensors_;
  std::vector<Slot> slots_;
};

}  // namespace penstock
