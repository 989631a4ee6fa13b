#include "graph/capture/foreign_scope.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

namespace penstock {
namespace {

thread_local const ForeignScope* foreign_scope = nullptr;

}  // namespace

ForeignScope::ForeignScope(Judge judge) : judge_(std::move(judge)) { foreign_scope = this; }
ForeignScope::~ForeignScope() { foreign_scope = nullptr; }

ForeignTensor ForeignScope::JudgementOf(const at::Tensor& tensor) {
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) return {};
  ForeignTensor judgement;
  if (foreign_scope != nullptr) judgement = foreign_scope->judge_(tensor);
  if (judgement.refusal.empty() && tensor.requires_grad()) {
    judgement.refusal = fmt::format(
        "the stage reads a tensor of shape [{}] that requires a gradient but is none of its "
        "parameters",
        fmt::join(tensor.sizes(), ", "));
  }
  return judgement;
}

}  // namespace penstock
