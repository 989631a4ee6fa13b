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

SliceState::SliceState(int slices, int microbatches, std::size_t tensors)
    : slices_(slices), tensors_(tensors) {
  slots_.resize(tensors == 0 ? 0 : Index(microbatches));
  for (Slot& slot : slots_) {
    slot.own.resize(tensors);
    slot.gradients.resize(tensors);
  }
}

void SliceState::ReadEarlier(int microbatch, std::span<at::Tensor> to) const {
  const std::size_t first = Index(microbatch - SliceOf(microbatch));
  for (std::size_t i = 0; i < Earlier(microbatch); ++i) {
    to[i] = slots_[first + i / tensors_].own[i % tensors_];
    PENSTOCK_CHECK(to[i].defined(), "F of microbatch {} runs before F of microbatch {}", microbatch,
                   first + i / tensors_);
  }
}

void SliceState::Store(int microbatch, std::span<at::Tensor> own) {
  if (tensors_ == 0) return;
  std::vector<at::Tensor>& stored = slots_[microbatch].own;
  for (std::size_t i = 0; i < tensors_; ++i) {
    if (!IsLast(microbatch)) stored[i] = std::move(own[i]);
    own[i].reset();  // no slice reads the last one's
  }
}

std::int64_t SliceState::TakeGradients(int microbatch, std::span<at::Tensor> to) {
  if (tensors_ == 0) return 0;
  Slot& own = slots_[microbatch];
  for (at::Tensor& tensor : own.own) tensor.reset();
  if (IsLast(microbatch)) return 0;
  PENSTOCK_CHECK(own.gradients.front().defined(),
                 "backward of microbatch {} runs before the backward of microbatch {}", microbatch,
                 microbatch + 1);
  const std::int64_t bytes = BytesOf(own.gradients);
  std::move(own.gradients.begin(), own.gradients.end(), to.begin());
  return -bytes;
}

std::int64_t SliceState::AddGradients(int microbatch, std::span<at::Tensor> computed) {
  const c10::InferenceMode guard;  // as programs do, which created these tensors
  std::int64_t bytes = 0;
  for (std::size_t i = 0; i < Earlier(microbatch); ++i) {
    at::Tensor& accumulator = OfSlice(microbatch, i / tensors_).gradients[i % tensors_];
    if (accumulator.defined()) {
      accumulator.add_(computed[i]);
    } else {
      accumulator = std::move(computed[i]);
      bytes += static_cast<std::int64_t>(accumulator.nbytes());
    }
    computed[i].reset();
  }
  return bytes;
}

void SliceState::Clear() {
  for (Slot& slot : slots_) {
    for (at::Tensor& tensor : slot.own) tensor.reset();
    for (at::Tensor& tensor : slot.gradients) tensor.reset();
  }
}

}  // namespace penstock
