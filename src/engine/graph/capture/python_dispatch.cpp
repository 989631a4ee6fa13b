#include "graph/capture/python_dispatch.h"

#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/PyInterpreter.h>
#include <c10/core/impl/PyInterpreterHooks.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>

#include <algorithm>

namespace penstock {
namespace {

using c10::DispatchKey;
using c10::DispatchKeySet;
using c10::impl::TorchDispatchModeTLS;

bool IsSubclass(const at::Tensor& tensor) {
  return tensor.defined() && tensor.key_set().has(DispatchKey::Python);
}

bool IsMeta(const at::Tensor& tensor) { return tensor.defined() && tensor.is_meta(); }

// Whether a value is or has a tensor for which the predicate holds.
bool HasTensor(const c10::IValue& value, bool (*is)(const at::Tensor&)) {
  if (value.isTensor()) return is(value.toTensor());
  if (value.isTensorList()) return std::ranges::any_of(value.toTensorVector(), is);
  if (!value.isOptionalTensorList()) return false;
  return std::ranges::any_of(
      value.toOptionalTensorVector(),
      [is](const std::optional<at::Tensor>& each) { return each && is(*each); });
}

bool HasSubclass(const c10::IValue& value) { return HasTensor(value, IsSubclass); }

bool IsOnMeta(const c10::IValue& value) {
  return (value.isDevice() && value.toDevice().is_meta()) || HasTensor(value, IsMeta);
}

bool AnyArgument(const c10::OperatorHandle& op, const torch::jit::Stack& stack,
                 bool (*is)(const c10::IValue&)) {
  const std::size_t count = op.schema().arguments().size();
  return std::any_of(stack.end() - static_cast<std::ptrdiff_t>(count), stack.end(), is);
}

}  // namespace

bool IsOfSubclass(const c10::OperatorHandle& op, DispatchKeySet keys,
                  const torch::jit::Stack& stack) {
  return keys.has(DispatchKey::Python) && AnyArgument(op, stack, HasSubclass);
}

void CallSubclass(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  // torch's fallback of this key excludes all keys above it, and Fake with them.
  constexpr DispatchKeySet kAbove =
      DispatchKeySet(DispatchKeySet::FULL) -
      (DispatchKeySet(DispatchKeySet::FULL_AFTER, DispatchKey::Python) |
       DispatchKeySet({DispatchKey::Python, DispatchKey::Fake}));
  const c10::impl::ExcludeDispatchKeyGuard below_autograd(kAbove);
  const auto modes = TorchDispatchModeTLS::stack_len();
  const c10::impl::PyInterpreter& interpreter =
      modes > 0 ? TorchDispatchModeTLS::get_stack_at(modes - 1)->pyinterpreter()
                : *c10::impl::getGlobalPyInterpreter();
  interpreter->dispatch(op, stack);
}

bool InfersShapes(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  if (TorchDispatchModeTLS::stack_len() > 0 &&
      TorchDispatchModeTLS::get_mode(c10::impl::TorchDispatchModeKey::FAKE).has_value()) {
    return true;
  }
  // Since torch 2.13, that mode runs before captures, which see the ops that it calls instead.
  return c10::impl::tls_local_dispatch_key_set().included_.has_backend(
             c10::BackendComponent::MetaBit) ||
         AnyArgument(op, stack, IsOnMeta);
}

bool IsComposite(const c10::OperatorHandle& op, DispatchKeySet keys) {
  const DispatchKey kernel =
      (keys - DispatchKeySet({DispatchKey::Python, DispatchKey::PythonTLSSnapshot}))
          .highestPriorityTypeId();
  return op.hasKernelForDispatchKey(DispatchKey::CompositeImplicitAutograd) &&
         !op.hasKernelForDispatchKey(kernel);
}

}  // namespace penstock
