// Watch: notices changes of Python objects that compiled stages assume to stay unchanged.
//
// Checking takes some nanoseconds per entry, and for contents the time to read them, so that it can
// run before each step. Entries have numbers, by which changed() names them.
// Threads: any that holds the GIL.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "bindings/engine/watch_entries.h"

namespace penstock::python {

class Watch {
 public:
  Watch() = default;
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  // Each of these returns the number of the entry, which is unchanged while it is as now.
  // The dict, or the class, has this value under the key: the same object or an equal number.
  int AddItem(nb::object holder, nb::object key, nb::object value);
  // The dict, or the class, does not have the key.
  int AddAbsent(nb::object holder, nb::object key);
  // The dict, or the class, has the same ones of the keys in the set `read`, or in general (None).
  int AddKeys(nb::object holder, nb::object read);
  // A list, tuple, set, deque or dict has the same members in this order.
  int AddMembers(nb::object container);
  // The dict or list has as many entries.
  int AddSize(nb::object container);
  int AddCell(nb::object cell);
  int AddClass(nb::object value);
  // The function has the same code and defaults.
  int AddFunction(nb::object function);
  // get() returns the same value.
  int AddCall(nb::callable get);
  // The tensor has the memory, shape, requires_grad and hooks, or none.
  int AddTensor(const at::Tensor& tensor);
  // The tensor has the same bytes, which the watch copies. Its version would not tell: fused
  // kernels and NumPy do not raise it. The host waits once per device for all comparisons.
  // Requires: a strided tensor.
  int AddContent(const at::Tensor& tensor);
  // All that the other one watches. Its entries have no numbers here.
  void AddWatch(std::shared_ptr<Watch> other);

  bool IsUnchanged() const;
  // Returns the numbers of the entries that have changed.
  std::vector<int> Changed() const;

 private:
  struct DeviceContent {
    int number;
    at::Tensor tensor;
    at::Tensor bytes;  // on the device
  };
  // By device: whether a byte of it was changed, which is not known yet.
  using Comparisons = std::map<c10::DeviceIndex, at::Tensor>;

  DictEntries& EntriesOf(const nb::object& holder);
  int Add(std::unique_ptr<WatchEntry> entry);
  // Checks all but what is on devices, where it starts to compare.
  bool IsUnchangedHere(Comparisons& on_devices) const;

  int count_ = 0;
  std::vector<std::unique_ptr<WatchEntry>> entries_;
  std::map<PyObject*, DictEntries*> dicts_;  // in entries_, by holder
  std::vector<DeviceContent> device_contents_;
  std::vector<std::shared_ptr<Watch>> others_;
};

}  // namespace penstock::python
