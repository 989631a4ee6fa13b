#include "train/weights/exchanged_tensors.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>

#include <atomic>
#include <span>

#include "collective/element_sum.h"
#include "train/memory_of.h"

namespace penstock {

at::Tensor& Unread(std::int64_t elements, const at::TensorOptions& options, at::Tensor& kept) {
  if (!kept.defined() || kept.use_count() > 1 || !kept.is_cpu())
    kept = at::empty({elements}, options);
  std::atomic_thread_fence(std::memory_order_acquire);
  return kept;
}

void SumParts(const std::vector<at::Tensor>& parts, const at::Tensor& sum) {
  if (!sum.is_cpu()) {
    const at::NoGradGuard no_gradients;
    at::Tensor total = parts.front().to(at::kFloat);
    for (const at::Tensor& part : std::span(parts).subspan(1)) total = at::add(total, part);
    sum.copy_(total.view(sum.sizes()));
    return;
  }
  std::vector<std::span<const std::byte>> memory;
  for (const at::Tensor& part : parts) memory.emplace_back(MemoryOf(part));
  const bool is_bf16 = sum.scalar_type() == at::kBFloat16;
  SumInOrder(memory, MemoryOf(sum), is_bf16 ? ElementType::kBfloat16 : ElementType::kFloat32);
}

}  // namespace penstock
