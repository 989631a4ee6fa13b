#include "train/shards/full_tensors.h"

#include <ATen/ops/empty.h>

#include <utility>

#include "base/index.h"
#include "base/result.h"

namespace penstock {

FullTensors::FullTensors(const Shards& shards, std::vector<at::Tensor> tensors)
    : shards_(shards), tensors_(std::move(tensors)) {
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const at::Tensor& tensor = tensors_[i];
    PENSTOCK_CHECK(!shards_.sharded(i) || (tensor.is_contiguous() && tensor.storage_offset() == 0),
                   "a sharded parameter is not contiguous in its storage");
  }
  sequence_ = at::empty({shards_.rest()}, tensors_.front().options().requires_grad(false));
  PointTo(nullptr);
}

void FullTensors::Allocate() {
  Use(at::empty({shards_.rest()}, tensors_.front().options().requires_grad(false)));
}

void FullTensors::Use(at::Tensor buffer) {
  PENSTOCK_CHECK(!exist(), "the whole parameters exist already");
  PENSTOCK_CHECK(buffer.numel() == shards_.rest(), "{} elements of {}", buffer.numel(),
                 shards_.rest());
  buffer_ = std::move(buffer);
  PointTo(static_cast<char*>(buffer_.mutable_data_ptr()));
}

void FullTensors::Free() {
  PointTo(nullptr);
  buffer_.reset();
}

std::int64_t FullTensors::bytes() const {
  return tensors_.empty() ? 0
                          : shards_.rest() * static_cast<std::int64_t>(tensors_.front().itemsize());
}

void FullTensors::PointTo(char* memory) {
  sequence_.storage().unsafeGetStorageImpl()->set_data_ptr_noswap({memory, sequence_.device()});
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    if (!shards_.sharded(i)) continue;
    char* const begin =
        memory == nullptr ? nullptr : memory + Index(shards_.start(i)) * tensors_[i].itemsize();
    tensors_[i].storage().unsafeGetStorageImpl()->set_data_ptr_noswap(
        {begin, tensors_[i].device()});
  }
}

}  // namespace penstock
