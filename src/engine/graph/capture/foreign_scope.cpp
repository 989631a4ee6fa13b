#include "graph/capture/foreign_scope.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

namespace penstock {
namespace {

thread_local const ForeignScope* foreign_scope = nullptr;

}  // namespace

ForeignScope::ForeignScope(Refusal refusal) : refusal_(std::move(refusal)) { foreign_scope = this; }
ForeignScope::~ForeignScope() { foreign_scope = nullptr; }

std::string ForeignScope::RefusalOf(const at::Tensor& tensor) {
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) return {};
  std::string refusal;
  if (foreign_scope != nullptr) refusal = foreign_scope->refusal_(tensor);
  if (refusal.empty() && tensor.requires_grad()) {
    refusal = fmt::format(
        "the stage reads a tensor of shape [{}] that requires a gradient but is none of its "
        "parameters",
        fmt::join(tensor.sizes(), ", "));
  }
  return refusal;
}

}  // namespace penstock
