// What a stage holds of microbatches whose sequences run in cuts: keys and values, and their
// gradients from later cuts. They never leave the stage. Private to train/.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

namespace penstock {

class CutState {
 public:
  // `kept`: keys and values of one row, of all the stage's layers. Without cuts it is 0, and all
  // calls do nothing.
  CutState(int cuts, int rows, std::size_t kept);

  int CutOf(int row) const { return row % cuts_; }
  bool IsLast(int row) const { return CutOf(row) == cuts_ - 1; }
  std::size_t kept() const { return kept_; }
  // How many keys and values of earlier cuts the row reads.
  std::size_t Earlier(int row) const { return kept_ * static_cast<std::size_t>(CutOf(row)); }
  // How many of its own have gradients from later cuts.
  std::size_t Gradients(int row) const { return IsLast(row) ? 0 : kept_; }

  // F: gives those of earlier cuts, first cut first; then keeps the row's own.
  void Give(int row, std::span<at::Tensor> to) const;
  void Keep(int row, std::span<at::Tensor> own);

  // I or B: hands over the gradients of the row's own and lets its keys and values go; then adds
  // the gradients that it made for earlier cuts. Both return by how many bytes more is held.
  // Later cuts come first.
  std::int64_t TakeGradients(int row, std::span<at::Tensor> to);
  std::int64_t AddGradients(int row, std::span<at::Tensor> made);

  // Lets all of it go.
  void Clear();

 private:
  struct Row {
    std::vector<at::Tensor> own;
    std::vector<at::Tensor> gradients;
  };
  // The row of cut `cut` of the row's microbatch.
  Row& OfCut(int row, std::size_t cut) {
    return rows_[static_cast<std::size_t>(row - CutOf(row)) + cut];
  }

  int cuts_;
  std::size_t kept_;
  std::vector<Row> rows_;
};

}  // namespace penstock
