#include "train/weights/weight_versions.h"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/from_blob.h>

#include "base/index.h"
#include "base/result.h"

namespace penstock {
namespace {

// Returns a tensor with the same memory but another storage. When the storage is pointed to other
// memory, its views follow.
at::Tensor WithOwnStorage(const at::Tensor& tensor) {
  return at::for_blob(tensor.mutable_data_ptr(), tensor.sizes())
      .strides(tensor.strides())
      .options(tensor.options().requires_grad(false))
      .target_device(tensor.device())
      .make_tensor();
}

}  // namespace

WeightVersions::WeightVersions(std::span<const NamedTensor> newest, int older)
    : older_(Index(older)) {
  for (const NamedTensor& each : newest) {
    newest_.push_back(each.tensor.detach());
    values_.push_back(older_.empty() ? newest_.back() : WithOwnStorage(newest_.back()));
    for (auto& version : older_) version.push_back(at::empty_like(newest_.back()));
  }
}

void WeightVersions::Use(std::int64_t version) {
  const auto kept = static_cast<std::int64_t>(older_.size());
  PENSTOCK_CHECK(version >= updates_ - kept && version <= updates_,
                 "version {} of the weights is not available after {} updates", version, updates_);
  const int place = version == updates_ ? -1 : static_cast<int>(version % kept);
  if (place == place_) return;
  place_ = place;
  const auto& source = place < 0 ? newest_ : older_[place];
  for (std::size_t i = 0; i < values_.size(); ++i) {
    values_[i].storage().unsafeGetStorageImpl()->set_data_ptr_noswap(
        {source[i].mutable_data_ptr(), source[i].device()});
  }
}

void WeightVersions::Keep() {
  if (older_.empty()) return;
  auto& kept = older_[Index(updates_) % older_.size()];
  for (std::size_t i = 0; i < newest_.size(); ++i) kept[i].copy_(newest_[i]);
}

}  // namespace penstock
