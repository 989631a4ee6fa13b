#include "graph/capture/constant_masks.h"

#include <ATen/ops/nonzero.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <optional>

namespace penstock {
namespace {

bool IsMaskIndex(const std::optional<at::Tensor>& index) {
  return index && index->defined() &&
         (index->scalar_type() == at::kBool || index->scalar_type() == at::kByte);
}

bool HasMasks(const torch::jit::Stack& arguments) {
  return std::ranges::any_of(arguments[1].toOptionalTensorVector(), IsMaskIndex);
}

}  // namespace

bool IndexesByNumbers(const c10::OperatorHandle& op, const torch::jit::Stack& arguments) {
  return op.operator_name().name == "aten::index" && !HasMasks(arguments);
}

void ReplaceConstantMasks(const c10::OperatorHandle& op, torch::jit::Stack& arguments,
                          const std::function<bool(const at::Tensor&)>& is_constant) {
  static const c10::OperatorName index("aten::index", "Tensor");
  if (!(op.operator_name() == index)) return;
  if (!HasMasks(arguments)) return;
  const auto indices = arguments[1].toOptionalTensorVector();
  if (!std::ranges::all_of(
          indices, [&](const auto& each) { return !IsMaskIndex(each) || is_constant(*each); })) {
    return;
  }
  const c10::impl::ExcludeDispatchKeyGuard no_capture(c10::DispatchKey::Fake);
  c10::List<std::optional<at::Tensor>> numbers;
  for (const std::optional<at::Tensor>& each : indices) {
    if (!IsMaskIndex(each)) {
      numbers.push_back(each);
      continue;
    }
    for (const at::Tensor& of_dim : at::nonzero(*each).unbind(1)) {
      numbers.push_back(of_dim.contiguous());
    }
  }
  arguments[1] = numbers;
}

}  // namespace penstock
