// Ops on the test device: each runs later, as its CPU kernel on the shadows of its tensors.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/NativeFunctions.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <set>

#include "base/index.h"
#include "tests/engine/device/runtime.h"

namespace penstock::testing {
namespace {

using c10::IValue;
using torch::jit::Stack;

// Ops with outputs whose sizes depend on values, or whose values the host reads. And
// native_dropout, which takes no generator: it draws from the CPU's, which the caller may seed at
// once.
const std::set<std::string>& WaitingOps() {
  static const std::set<std::string> ops = {
      "aten::_local_scalar_dense", "aten::nonzero",  "aten::masked_select", "aten::equal",
      "aten::native_dropout",      "aten::_unique2", "aten::is_nonzero"};
  return ops;
}

bool IsOnDevice(const at::Tensor& tensor) {
  return tensor.defined() && tensor.device().type() == c10::DeviceType::PrivateUse1;
}

const void* BytesOf(const at::Tensor& tensor) { return tensor.storage().data(); }

// A tensor on the CPU with the same memory, which does not keep it.
at::Tensor ShadowOf(const at::Tensor& tensor) {
  if (!IsOnDevice(tensor)) return tensor;
  void* const bytes =
      BytesOf(tensor) == nullptr ? nullptr : Device::Get().Shadow(tensor.const_data_ptr());
  return at::from_blob(bytes, tensor.sizes(), tensor.strides(),
                       tensor.options().device(at::kCPU).requires_grad(false));
}

at::Tensor WithoutBytes(const at::Tensor& tensor) {
  if (!IsOnDevice(tensor)) return tensor;
  return at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(at::kMeta));
}

at::Tensor Zeros(const at::Tensor& tensor) {
  if (!IsOnDevice(tensor)) return tensor;
  return at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(at::kCPU))
      .zero_();
}

// Applies `change` to each tensor among the values, and names another device.
template <class Change>
Stack Changed(const Stack& values, c10::Device device, const Change& change) {
  Stack changed = values;
  for (IValue& value : changed) {
    if (value.isTensor()) {
      value = change(value.toTensor());
    } else if (value.isTensorList()) {
      c10::List<at::Tensor> tensors;
      for (const at::Tensor& each : value.toTensorVector()) tensors.push_back(change(each));
      value = tensors;
    } else if (value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> tensors;
      for (const std::optional<at::Tensor>& each : value.toOptionalTensorVector()) {
        tensors.push_back(each ? std::optional(change(*each)) : std::nullopt);
      }
      value = tensors;
    } else if (value.isDevice()) {
      value = device;
    } else if (value.isGenerator()) {
      value = value.toGenerator().clone();  // the caller may seed its own at once
    }
  }
  return changed;
}

template <class Visit>
void ForEachTensor(const IValue& value, const Visit& visit) {
  if (value.isTensor()) {
    visit(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& each : value.toTensorVector()) visit(each);
  } else if (value.isOptionalTensorList()) {
    for (const auto& each : value.toOptionalTensorVector()) {
      if (each) visit(*each);
    }
  }
}

// The outputs' sizes, strides and types, from tensors without bytes or, if the op has no kernel for
// these, from zeros.
Stack ShapesOf(const c10::OperatorHandle& op, const Stack& arguments) {
  // The meta kernels that Python registers for these have the types of CUDA.
  const bool is_norm = op.operator_name().name.find("_norm") != std::string::npos;
  try {
    TORCH_CHECK(!is_norm);
    Stack values = Changed(arguments, at::kMeta, WithoutBytes);
    op.callBoxed(values);
    return values;
  } catch (const c10::Error&) {
    Stack values = Changed(arguments, at::kCPU, Zeros);
    op.callBoxed(values);
    return values;
  }
}

at::Tensor EmptyLike(const at::Tensor& shape, c10::Device device) {
  if (!shape.defined()) return shape;
  return at::empty_strided(shape.sizes(), shape.strides(), shape.options().device(device));
}

const at::Tensor& Resize(const at::Tensor& self, at::IntArrayRef sizes,
                         std::optional<at::MemoryFormat>) {
  if (self.sizes() == sizes) return self;
  auto* const impl = self.unsafeGetTensorImpl();
  const auto bytes = static_cast<std::size_t>(c10::multiply_integers(sizes)) * self.itemsize();
  if (bytes > self.storage().nbytes()) {
    TORCH_CHECK(self.numel() == 0, "the test device does not keep values when it resizes");
    impl->set_storage_keep_dtype(at::empty(sizes, self.options()).storage());
  }
  impl->set_sizes_contiguous(sizes);
  return self;
}

// As on a GPU, a random op without a generator advances the device's when it is called.
Stack WithGenerator(const c10::OperatorHandle& op, Stack arguments) {
  const std::optional<int> index = op.schema().argumentIndexWithName("generator");
  if (!index || !arguments[Index(*index)].isNone()) return arguments;
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  arguments[Index(*index)] = generator.clone();
  at::check_generator<at::CPUGeneratorImpl>(generator)->random64();
  return arguments;
}

// Returns the device of the first tensor or, if there is none, the one that is named or chosen.
c10::Device DeviceOf(const Stack& arguments) {
  std::optional<c10::Device> found, named;
  for (const IValue& value : arguments) {
    ForEachTensor(value, [&](const at::Tensor& tensor) {
      if (!found && IsOnDevice(tensor)) found = tensor.device();
    });
    if (value.isDevice() && value.toDevice().has_index()) named = value.toDevice();
  }
  if (!found) found = named;
  if (found) return *found;
  return {kTestDevice.type(), static_cast<c10::DeviceIndex>(Device::CurrentDevice())};
}

// What one call of an op accesses and returns.
class Call {
 public:
  Call(const c10::OperatorHandle& op, Stack arguments)
      : op_(op),
        schema_(op.schema()),
        arguments_(WithGenerator(op, std::move(arguments))),
        device_(DeviceOf(arguments_)),
        guard_(device_) {}

  Stack Run() {
    const std::string name = toString(schema_.operator_name());
    if (WaitingOps().contains(schema_.name())) return RunNow(name);
    ResizeResults();
    AddInputs();
    Stack results = Outputs();
    Stack shadows = Changed(probe_.empty() ? arguments_ : probe_, at::kCPU, ShadowOf);
    std::vector<at::Tensor> copies;
    for (const at::Tensor& each : fresh_) copies.push_back(ShadowOf(each));
    Device::Get().Start(Device::CurrentStream(), name, accesses_,
                        [op = op_, shadows = std::move(shadows), copies = std::move(copies)] {
                          Compute(op, shadows, copies);
                        });
    return results;
  }

 private:
  static void Compute(const c10::OperatorHandle& op, Stack values,
                      const std::vector<at::Tensor>& copies) {
    const at::AutoDispatchBelowADInplaceOrView below;
    op.callBoxed(values);
    std::size_t next = 0;
    for (const IValue& value : values) {
      ForEachTensor(value, [&](const at::Tensor& result) {
        if (next < copies.size() && copies[next].defined()) copies[next].copy_(result);
        ++next;
      });
    }
  }

  // The host waits, and reads or moves the results.
  Stack RunNow(const std::string& name) {
    AddInputs();
    Device::Get().Start(Device::CurrentStream(), name, accesses_, [] {});
    Device::Get().SynchronizeStream(Device::CurrentStream(), name);
    Stack values = Changed(arguments_, at::kCPU, ShadowOf);
    op_.callBoxed(values);
    return Changed(values, device_, [&](const at::Tensor& result) { return result.to(device_); });
  }

  // Gives `out` tensors that the op would resize their memory. The `out` tensors of two losses have
  // the size before the reduction. The op then runs with new tensors, whose values are copied.
  void ResizeResults() {
    std::vector<std::size_t> outs;
    bool resizes = false;
    for (std::size_t i = 0; i < arguments_.size(); ++i) {
      if (!schema_.arguments()[i].is_out() || !arguments_[i].isTensor()) continue;
      outs.push_back(i);
      resizes = resizes || arguments_[i].toTensor().numel() == 0;
    }
    const bool is_loss =
        schema_.name() == "aten::mse_loss" || schema_.name() == "aten::smooth_l1_loss";
    if (outs.empty() || (!resizes && !is_loss)) return;
    probe_ = arguments_;
    for (const std::size_t i : outs) {
      probe_[i] = at::empty({0}, arguments_[i].toTensor().options());
    }
    const Stack shapes = ShapesOf(op_, probe_);
    bool fits = true;
    for (std::size_t i = 0; i < outs.size(); ++i) {
      fits = fits && arguments_[outs[i]].toTensor().sizes() == shapes[i].toTensor().sizes();
    }
    if (fits && !is_loss) return probe_.clear();
    for (std::size_t i = 0; i < outs.size(); ++i) {
      const at::Tensor& out = arguments_[outs[i]].toTensor();
      Resize(out, shapes[i].toTensor().sizes(), {});
      fresh_.push_back(out);
      probe_[outs[i]] = at::empty({0}, out.options().device(at::kCPU));
    }
  }

  void AddInputs() {
    for (std::size_t i = 0; i < arguments_.size(); ++i) {
      const c10::AliasInfo* const alias = schema_.arguments()[i].alias_info();
      const bool writes = alias != nullptr && alias->isWrite();
      ForEachTensor(arguments_[i], [&](const at::Tensor& tensor) {
        if (IsOnDevice(tensor)) accesses_.push_back({BytesOf(tensor), writes});
      });
    }
  }

  Stack Outputs() {
    Stack results;
    if (std::ranges::any_of(schema_.returns(),
                            [](const auto& each) { return each.alias_info() != nullptr; })) {
      return Arguments();
    }
    if (schema_.returns().empty()) return results;
    results = Changed(ShapesOf(op_, arguments_), device_, [&](const at::Tensor& shape) {
      fresh_.push_back(EmptyLike(shape, device_));
      if (shape.defined()) accesses_.push_back({BytesOf(fresh_.back()), true});
      return fresh_.back();
    });
    return results;
  }

  // Returns the arguments that the op writes to, which are its results.
  Stack Arguments() {
    Stack results;
    for (std::size_t i = 0; i < arguments_.size(); ++i) {
      const c10::AliasInfo* const alias = schema_.arguments()[i].alias_info();
      if (alias != nullptr && alias->isWrite()) results.push_back(arguments_[i]);
    }
    TORCH_CHECK(results.size() == schema_.returns().size(), schema_.operator_name(),
                ": the test device has no kernel for this view");
    return results;
  }

  const c10::OperatorHandle op_;
  const c10::FunctionSchema& schema_;
  const Stack arguments_;
  const c10::Device device_;
  const c10::DeviceGuard guard_;
  std::vector<Access> accesses_;
  std::vector<at::Tensor> fresh_;  // that the results are copied to
  Stack probe_;                    // the arguments with other `out` tensors; empty: unchanged
};

Stack ArgumentsOf(const c10::OperatorHandle& op, Stack& stack) {
  return torch::jit::pop(stack, op.schema().arguments().size());
}

void Fallback(const c10::OperatorHandle& op, Stack* stack) {
  for (IValue& result : Call(op, ArgumentsOf(op, *stack)).Run()) {
    stack->push_back(std::move(result));
  }
}

// PyTorch calls these for devices that it does not know. Their CPU kernels have other names.
void Convolution(const c10::OperatorHandle& op, Stack* stack) {
  static const auto of_cpu =
      c10::Dispatcher::singleton().findSchemaOrThrow("aten::convolution", "");
  for (IValue& result : Call(of_cpu, ArgumentsOf(op, *stack)).Run()) {
    stack->push_back(std::move(result));
  }
}
void ConvolutionBackward(const c10::OperatorHandle& op, Stack* stack) {
  static const auto of_cpu =
      c10::Dispatcher::singleton().findSchemaOrThrow("aten::convolution_backward", "");
  constexpr std::ptrdiff_t kBiasSizes = 3;  // the place of an argument that only this one has
  Stack arguments = ArgumentsOf(op, *stack);
  const std::int64_t channels = arguments[0].toTensor().size(1);
  arguments.insert(arguments.begin() + kBiasSizes, c10::List<std::int64_t>({channels}));
  for (IValue& result : Call(of_cpu, std::move(arguments)).Run()) {
    stack->push_back(std::move(result));
  }
}

at::Tensor EmptyStrided(at::IntArrayRef sizes, at::IntArrayRef strides,
                        std::optional<at::ScalarType> type, std::optional<at::Layout>,
                        std::optional<at::Device> device, std::optional<bool>) {
  const c10::OptionalDeviceGuard guard(device);
  constexpr c10::DispatchKeySet keys(c10::DispatchKey::PrivateUse1);
  return at::detail::empty_strided_generic(sizes, strides,
                                           c10::GetAllocator(c10::DeviceType::PrivateUse1), keys,
                                           type.value_or(at::kFloat));
}

at::Tensor Empty(at::IntArrayRef sizes, std::optional<at::ScalarType> type,
                 std::optional<at::Layout>, std::optional<at::Device> device, std::optional<bool>,
                 std::optional<at::MemoryFormat> format) {
  const c10::OptionalDeviceGuard guard(device);
  constexpr c10::DispatchKeySet keys(c10::DispatchKey::PrivateUse1);
  return at::detail::empty_generic(sizes, c10::GetAllocator(c10::DeviceType::PrivateUse1), keys,
                                   type.value_or(at::kFloat), format);
}

at::Tensor CopyFrom(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  const c10::DeviceGuard guard(IsOnDevice(to) ? to.device() : from.device());
  const int stream = Device::CurrentStream();
  if (!IsOnDevice(to) && non_blocking && to.is_pinned()) {
    Device::Get().Start(stream, "copy to pinned memory", {{BytesOf(from), false}},
                        [source = ShadowOf(from), to] {
                          const at::AutoDispatchBelowADInplaceOrView below;
                          to.copy_(source);
                        });
    return to;
  }
  if (!IsOnDevice(to)) {
    Device::Get().Start(stream, "copy to the host", {{BytesOf(from), false}}, [] {});
    Device::Get().SynchronizeStream(stream, "copy to the host");
    to.copy_(ShadowOf(from));
    return to;
  }
  std::vector<Access> accesses = {{BytesOf(to), true}};
  at::Tensor source = ShadowOf(from);
  if (IsOnDevice(from)) {
    accesses.push_back({BytesOf(from), false});
  } else {
    source = from.is_pinned() ? from : from.clone();  // pageable memory is read at once
  }
  auto copy = [source, target = ShadowOf(to)] {
    const at::AutoDispatchBelowADInplaceOrView below;
    target.copy_(source);
  };
  if (IsOnDevice(from) && from.device() != to.device()) {
    Device::Get().CopyBetween(Device::CurrentStream(from.device().index()), stream, accesses, copy);
  } else {
    Device::Get().Start(stream, "copy", accesses, copy);
  }
  return to;
}

void RecordStream(at::Tensor& self, at::Stream stream) {
  Device::Get().RecordUse(BytesOf(self), static_cast<int>(stream.id()));
}

at::Tensor AsStrided(const at::Tensor& self, at::IntArrayRef sizes, at::IntArrayRef strides,
                     std::optional<std::int64_t> offset) {
  return at::native::as_strided_tensorimpl(self, sizes, strides, offset);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&Fallback>());
}

// Autocast, as on the devices that PyTorch knows.
TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFallthrough());
}
TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
#define PENSTOCK_LOWER(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
  AT_FORALL_LOWER_PRECISION_FP(PENSTOCK_LOWER)
#undef PENSTOCK_LOWER
#define PENSTOCK_FP32(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
  AT_FORALL_FP32(PENSTOCK_FP32)
#undef PENSTOCK_FP32
}

// Ops that the CPU has a kernel for, and other devices a composition, which rounds differently.
void AddFallbacks(torch::Library& library) {
  c10::Dispatcher& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    const auto op = dispatcher.findSchema(name);
    if (!op || !op->hasKernelForDispatchKey(c10::DispatchKey::CPU)) continue;
    const bool is_composed =
        op->hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd) ||
        op->hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd);
    if (!is_composed || !name.name.starts_with("aten::")) continue;
    library.impl(name.overload_name.empty() ? name.name.c_str()
                                            : (name.name + "." + name.overload_name).c_str(),
                 torch::CppFunction::makeFromBoxedFunction<&Fallback>());
  }
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  AddFallbacks(library);
  library.impl("empty.memory_format", Empty);
  library.impl("empty_strided", EmptyStrided);
  library.impl("_copy_from", CopyFrom);
  library.impl("resize_", Resize);
  library.impl("record_stream", RecordStream);
  library.impl("convolution_overrideable",
               torch::CppFunction::makeFromBoxedFunction<&Convolution>());
  library.impl("convolution_backward_overrideable",
               torch::CppFunction::makeFromBoxedFunction<&ConvolutionBackward>());
  library.impl("set_.source_Storage", at::native::set_);
  library.impl("set_.source_Storage_storage_offset", at::native::set_storage_cpu_);
  library.impl("set_.source_Tensor", at::native::set_tensor_);
  library.impl("view_as_real", at::native::view_as_real);
  library.impl("view_as_complex", at::native::view_as_complex);
  library.impl("as_strided", AsStrided);
  library.impl("view", at::native::view);
  library.impl("_reshape_alias", at::native::_reshape_alias);
  library.impl("unfold", at::native::unfold);
}

}  // namespace
}  // namespace penstock::testing
