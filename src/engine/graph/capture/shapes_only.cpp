#include "graph/capture/shapes_only.h"

#include <ATen/core/LegacyTypeDispatch.h>

#include "base/index.h"
#include "graph/ir/ir.h"

namespace penstock {
namespace {

using c10::IValue;

thread_local ShapesOnly* current = nullptr;

// Returns a tensor with the type and shape of `like` on another storage.
at::Tensor OnStorage(const at::Tensor& like, const c10::Storage& storage, c10::DispatchKey key) {
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(storage), c10::DispatchKeySet(key), like.dtype());
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(like.sizes(), like.strides(),
                                                      like.storage_offset());
  // Type promotion treats a wrapped number as a scalar.
  if (like.unsafeGetTensorImpl()->is_wrapped_number()) {
    tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  }
  return tensor;
}

c10::Storage WithoutBytes(std::size_t size, c10::Device device) {
  return {c10::Storage::use_byte_size_t(), size, c10::DataPtr(nullptr, device), nullptr,
          /*resizable=*/false};
}

}  // namespace

ShapesOnly::ShapesOnly() : include_(c10::DispatchKey::Fake) {
  TORCH_CHECK(current == nullptr, "this thread already has a ShapesOnly");
  LinkMetaKernels();
  current = this;
}
ShapesOnly::~ShapesOnly() { current = nullptr; }

ShapesOnly* ShapesOnly::Current() { return current; }

at::Tensor ShapesOnly::ToMeta(const at::Tensor& tensor) {
  if (!tensor.defined()) return tensor;
  const c10::StorageImpl* real = tensor.storage().unsafeGetStorageImpl();
  const auto [entry, is_new] = meta_of_.try_emplace(real);
  if (is_new) {
    entry->second = WithoutBytes(tensor.storage().nbytes(), c10::kMeta);
    real_of_.emplace(entry->second.unsafeGetStorageImpl(), tensor.storage());
  }
  return OnStorage(tensor, entry->second, c10::DispatchKey::Meta);
}

at::Tensor ShapesOnly::FromMeta(const at::Tensor& meta) {
  if (!meta.defined() || !meta.is_meta()) return meta;
  const c10::StorageImpl* storage = meta.storage().unsafeGetStorageImpl();
  const auto [entry, is_new] = real_of_.try_emplace(storage);
  if (is_new) {
    entry->second = WithoutBytes(meta.storage().nbytes(), c10::kCPU);
    meta_of_.emplace(entry->second.unsafeGetStorageImpl(), meta.storage());
  }
  return OnStorage(meta, entry->second, c10::DispatchKey::CPU);
}

IValue ShapesOnly::ToMeta(const IValue& value) {
  if (value.isTensor()) return ToMeta(value.toTensor());
  if (value.isDevice()) return c10::Device(c10::kMeta);
  if (value.isGenerator()) return {};
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& each : value.toTensorVector()) list.push_back(ToMeta(each));
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const auto& each : value.toOptionalTensorVector()) {
      list.push_back(each ? std::make_optional(ToMeta(*each)) : std::nullopt);
    }
    return list;
  }
  return value;
}

IValue ShapesOnly::FromMeta(const IValue& value) {
  if (value.isTensor()) return FromMeta(value.toTensor());
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& each : value.toTensorVector()) list.push_back(FromMeta(each));
    return list;
  }
  return value;
}

void ShapesOnly::Run(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const c10::impl::ExcludeDispatchKeyGuard below(c10::DispatchKey::Fake);
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const c10::FunctionSchema& schema = op.schema();
  const std::size_t begin = stack->size() - schema.arguments().size();
  torch::jit::Stack meta;
  bool has_tensor = false;
  for (std::size_t i = begin; i < stack->size(); ++i) {
    const IValue& argument = (*stack)[i];
    has_tensor = has_tensor || (argument.isTensor() && argument.toTensor().defined()) ||
                 argument.isTensorList();
    meta.push_back(ToMeta(argument));
  }
  // Without this, a factory op would allocate its tensors on the CPU.
  const auto device = schema.argumentIndexWithName("device");
  if (!has_tensor && device) meta[*device] = c10::Device(c10::kMeta);
  const int mutated = MutatedArgument(schema);
  op.callBoxed(&meta);
  // An in-place op returns its argument.
  if (mutated >= 0 && meta.size() == 1) {
    meta[0] = (*stack)[begin + Index(mutated)];
  } else {
    for (IValue& result : meta) result = FromMeta(result);
  }
  stack->resize(begin);
  for (IValue& result : meta) stack->push_back(std::move(result));
}

void RunKernel(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  if (current != nullptr) {
    current->Run(op, stack);
  } else {
    op.redispatchBoxed(keys, stack);
  }
}

}  // namespace penstock
