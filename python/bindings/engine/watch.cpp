#include "bindings/engine/watch.h"

#include <ATen/ops/any.h>
#include <ATen/ops/item.h>
#include <ATen/ops/logical_or.h>
#include <ATen/ops/ne.h>

#include <algorithm>
#include <utility>

namespace penstock::python {
namespace {

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

bool IsAnyTrue(const std::map<c10::DeviceIndex, at::Tensor>& on_devices) {
  return std::ranges::any_of(on_devices,
                             [](const auto& changed) { return changed.second.item().toBool(); });
}

}  // namespace

DictEntries& Watch::EntriesOf(const nb::object& holder) {
  DictEntries*& entries = dicts_[holder.ptr()];
  if (entries == nullptr) {
    entries_.push_back(std::make_unique<DictEntries>(holder));
    entries = static_cast<DictEntries*>(entries_.back().get());
  }
  return *entries;
}

int Watch::Add(std::unique_ptr<WatchEntry> entry) {
  entries_.push_back(std::move(entry));
  return count_++;
}

int Watch::AddItem(nb::object holder, nb::object key, nb::object value) {
  EntriesOf(holder).AddItem(count_, std::move(key), std::move(value));
  return count_++;
}
int Watch::AddAbsent(nb::object holder, nb::object key) {
  EntriesOf(holder).AddItem(count_, std::move(key), nb::object());
  return count_++;
}
int Watch::AddKeys(nb::object holder, nb::object read) {
  EntriesOf(holder).AddKeys(count_, std::move(read));
  return count_++;
}
int Watch::AddMembers(nb::object container) {
  return Add(WatchMembers(count_, std::move(container)));
}
int Watch::AddSize(nb::object container) { return Add(WatchSize(count_, std::move(container))); }
int Watch::AddCell(nb::object cell) { return Add(WatchCell(count_, std::move(cell))); }
int Watch::AddClass(nb::object value) { return Add(WatchClass(count_, std::move(value))); }
int Watch::AddFunction(nb::object function) {
  return Add(WatchFunction(count_, std::move(function)));
}
int Watch::AddCall(nb::callable get) { return Add(WatchCall(count_, std::move(get))); }
int Watch::AddTensor(const at::Tensor& tensor) { return Add(WatchTensor(count_, tensor)); }

int Watch::AddContent(const at::Tensor& tensor) {
  if (tensor.is_cpu()) return Add(WatchContent(count_, tensor));
  device_contents_.push_back({count_, tensor, BytesOnDevice(tensor).clone()});
  return count_++;
}

void Watch::AddWatch(std::shared_ptr<Watch> other) { others_.push_back(std::move(other)); }

bool Watch::IsUnchanged() const {
  Comparisons on_devices;
  return IsUnchangedHere(on_devices) && !IsAnyTrue(on_devices);
}

std::vector<int> Watch::Changed() const {
  std::vector<int> numbers;
  for (const auto& entry : entries_) entry->AppendChanged(numbers);
  for (const DeviceContent& each : device_contents_) {
    Comparisons on_devices;
    if (!StartComparison(each.tensor, each.bytes, on_devices) || IsAnyTrue(on_devices)) {
      numbers.push_back(each.number);
    }
  }
  return numbers;
}

bool Watch::IsUnchangedHere(Comparisons& on_devices) const {
  return std::ranges::all_of(entries_, [](const auto& entry) { return entry->IsUnchanged(); }) &&
         std::ranges::all_of(device_contents_,
                             [&](const DeviceContent& each) {
                               return StartComparison(each.tensor, each.bytes, on_devices);
                             }) &&
         std::ranges::all_of(others_,
                             [&](const auto& other) { return other->IsUnchangedHere(on_devices); });
}

}  // namespace penstock::python
