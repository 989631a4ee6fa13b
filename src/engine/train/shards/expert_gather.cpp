#include "train/shards/expert_gather.h"

#include <ATen/ops/empty.h>

#include "train/memory_of.h"

namespace penstock {

void ExpertGather::Start(GroupEnd& group, std::span<const NamedTensor> own) {
  group_ = &group;
  tensors_.clear();
  for (const NamedTensor& each : own) {
    const at::Tensor sent = each.tensor.detach().contiguous();
    std::vector<std::int64_t> sizes = sent.sizes().vec();
    sizes[0] *= group.group().ranks();
    const at::Tensor all = at::empty(sizes, sent.options());
    CollectiveCall call{.kind = CollectiveKind::kAllGather};
    call.input = {static_cast<const std::byte*>(sent.const_data_ptr()), sent.nbytes()};
    call.output = MemoryOf(all);
    tensors_.push_back({each.name, group.Start(call, sent, all)});
  }
}

std::vector<NamedTensor> ExpertGather::Finish() {
  std::vector<NamedTensor> all;
  for (const Tensor& each : tensors_) all.push_back({each.name, group_->Wait(each.ticket)});
  tensors_.clear();
  return all;
}

}  // namespace penstock
