// What a stage holds of microbatches whose sequences run in slices: keys and values, and their
// gradients from later slices. They never leave the stage. Private to train/.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "base/index.h"

namespace penstock {

class SliceState {
 public:
  // `kept`: keys and values of one row, of all the stage's layers. Without slices it is 0, and all
  // calls do nothing.
  SliceState(int slices, int rows, std::size_t kept);

  int SliceOf(int row) const { return row % slices_; }
  bool IsLast(int row) const { return SliceOf(row) == slices_ - 1; }
  std::size_t kept() const { return kept_; }
  // How many keys and values of earlier slices the row reads.
  std::size_t Earlier(int row) const { return kept_ * Index(SliceOf(row)); }
  // How many of its own have gradients from later slices.
  std::size_t Gradients(int row) const { return IsLast(row) ? 0 : kept_; }

  // F: gives those of earlier slices, first slice first; then keeps the row's own.
  void Give(int row, std::span<at::Tensor> to) const;
  void Keep(int row, std::span<at::Tensor> own);

  // I or B: hands over the gradients of the row's own and lets its keys and values go; then adds
  // the gradients that it made for earlier slices. Both return by how many bytes more is held.
  // Later slices come first.
  std::int64_t TakeGradients(int row, std::span<at::Tensor> to);
  std::int64_t AddGradients(int row, std::span<at::Tensor> made);

  // Lets all of it go.
  void Clear();

 private:
  struct Row {
    std::vector<at::Tensor> own;
    std::vector<at::Tensor> gradients;
  };
  // The row of slice `slice` of the row's microbatch.
  Row& OfSlice(int row, std::size_t slice) { return rows_[Index(row - SliceOf(row)) + slice]; }

  int slices_;
  std::size_t kept_;
  std::vector<Row> rows_;
};

}  // namespace penstock
