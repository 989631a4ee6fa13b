#include "bindings/engine/watch.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/any.h>
#include <ATen/ops/item.h>
#include <ATen/ops/logical_or.h>
#include <ATen/ops/ne.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <string_view>
#include <utility>

namespace penstock::python {
namespace {

bool HasHooks(const at::Tensor& tensor) {
  namespace autograd = torch::autograd::impl;
  if (autograd::get_autograd_meta(tensor) == nullptr) return false;
  return !autograd::hooks(tensor).empty() || autograd::post_acc_grad_hooks(tensor) != nullptr;
}

// Returns the memory from the tensor's first element to its last one.
std::string_view BytesOf(const at::Tensor& tensor) {
  if (tensor.numel() == 0) return {};
  std::int64_t last = 0;
  for (std::int64_t dim = 0; dim < tensor.dim(); ++dim) {
    last += (tensor.size(dim) - 1) * tensor.stride(dim);
  }
  return {static_cast<const char*>(tensor.const_data_ptr()),
          static_cast<std::size_t>(last + 1) * tensor.element_size()};
}

// As bytes, because NaN differs from itself.
at::Tensor BytesOnDevice(const at::Tensor& tensor) {
  return tensor.detach().flatten().view(at::kByte);
}

// Returns false if the sizes differ already.
bool StartComparison(const at::Tensor& tensor, const at::Tensor& bytes,
                     std::map<c10::DeviceIndex, at::Tensor>& on_devices) {
  const at::Tensor now = BytesOnDevice(tensor);
  if (now.sizes() != bytes.sizes()) return false;
  const at::Tensor differs = now.ne(bytes).any();
  at::Tensor& any = on_devices[tensor.device().index()];
  any = any.defined() ? any.logical_or(differs) : differs;
  return true;
}

}  // namespace

void Watch::AddItem(nb::dict dict, nb::object key, nb::object value) {
  items_.push_back({std::move(dict), std::move(key), std::move(value)});
}

void Watch::AddSize(nb::object container) {
  const Py_ssize_t size = PyObject_Size(container.ptr());
  sizes_.push_back({std::move(container), size});
}

void Watch::AddTensor(const at::Tensor& tensor) {
  tensors_.push_back({tensor, tensor.const_data_ptr(), tensor.requires_grad()});
}

void Watch::AddContent(const at::Tensor& tensor) {
  if (tensor.is_cpu()) {
    contents_.push_back({tensor, std::string(BytesOf(tensor))});
  } else {
    device_contents_.push_back({tensor, BytesOnDevice(tensor).clone()});
  }
}

void Watch::AddWatch(std::shared_ptr<Watch> other) { others_.push_back(std::move(other)); }

bool Watch::IsUnchanged() const {
  Comparisons on_devices;
  return IsUnchangedHere(on_devices) && std::ranges::none_of(on_devices, [](const auto& changed) {
           return changed.second.item().toBool();
         });
}

bool Watch::IsUnchangedHere(Comparisons& on_devices) const {
  return std::ranges::all_of(items_,
                             [](const Item& each) {
                               return PyDict_GetItem(each.dict.ptr(), each.key.ptr()) ==
                                      each.value.ptr();
                             }) &&
         std::ranges::all_of(
             sizes_,
             [](const Size& each) { return PyObject_Size(each.container.ptr()) == each.size; }) &&
         std::ranges::all_of(tensors_,
                             [](const Tensor& each) {
                               return each.tensor.const_data_ptr() == each.data &&
                                      each.tensor.requires_grad() == each.requires_grad &&
                                      !HasHooks(each.tensor);
                             }) &&
         std::ranges::all_of(
             contents_, [](const Content& each) { return BytesOf(each.tensor) == each.bytes; }) &&
         std::ranges::all_of(device_contents_,
                             [&](const DeviceContent& each) {
                               return StartComparison(each.tensor, each.bytes, on_devices);
                             }) &&
         std::ranges::all_of(others_,
                             [&](const auto& other) { return other->IsUnchangedHere(on_devices); });
}

}  // namespace penstock::python
