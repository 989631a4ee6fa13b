#include "train/stage/slice_state.h"

#include <c10/core/InferenceMode.h>

#include <algorithm>

#include "base/index.h"
#include "base/result.h"

namespace penstock {
namespace {

std::int64_t BytesOf(std::span<const at::Tensor> tensors) {
  std::int64_t bytes = 0;
  for (const at::Tensor& tensor : tensors) bytes += static_cast<std::int64_t>(tensor.nbytes());
  return bytes;
}

}  // namespace

SliceState::SliceState(int slices, int rows, std::size_t kept) : slices_(slices), kept_(kept) {
  rows_.resize(kept == 0 ? 0 : Index(rows));
  for (Row& row : rows_) {
    row.own.resize(kept);
    row.gradients.resize(kept);
  }
}

void SliceState::Give(int row, std::span<at::Tensor> to) const {
  const std::size_t first = Index(row - SliceOf(row));
  for (std::size_t i = 0; i < Earlier(row); ++i) {
    to[i] = rows_[first + i / kept_].own[i % kept_];
    PENSTOCK_CHECK(to[i].defined(), "F of row {} before F of row {}", row, first + i / kept_);
  }
}

void SliceState::Keep(int row, std::span<at::Tensor> own) {
  if (kept_ == 0) return;
  std::vector<at::Tensor>& kept = rows_[row].own;
  for (std::size_t i = 0; i < kept_; ++i) {
    if (!IsLast(row)) kept[i] = std::move(own[i]);
    own[i].reset();  // nothing reads those of a last slice
  }
}

std::int64_t SliceState::TakeGradients(int row, std::span<at::Tensor> to) {
  if (kept_ == 0) return 0;
  Row& own = rows_[row];
  for (at::Tensor& tensor : own.own) tensor.reset();
  if (IsLast(row)) return 0;
  PENSTOCK_CHECK(own.gradients.front().defined(), "backward of row {} before that of row {}", row,
                 row + 1);
  const std::int64_t bytes = BytesOf(own.gradients);
  std::move(own.gradients.begin(), own.gradients.end(), to.begin());
  return -bytes;
}

std::int64_t SliceState::AddGradients(int row, std::span<at::Tensor> made) {
  const c10::InferenceMode guard;  // as what programs make
  std::int64_t bytes = 0;
  for (std::size_t i = 0; i < Earlier(row); ++i) {
    at::Tensor& gathered = OfSlice(row, i / kept_).gradients[i % kept_];
    if (gathered.defined()) {
      gathered.add_(made[i]);
    } else {
      gathered = std::move(made[i]);
      bytes += static_cast<std::int64_t>(gathered.nbytes());
    }
    made[i].reset();
  }
  return bytes;
}

void SliceState::Clear() {
  for (Row& row : rows_) {
    for (at::Tensor& tensor : row.own) tensor.reset();
    for (at::Tensor& tensor : row.gradients) tensor.reset();
  }
}

}  // namespace penstock
