// Watch: notices changes of Python objects that compiled stages assume to stay unchanged.
//
// Checking takes some nanoseconds per entry, and for contents the time to read them, so that it can
// run before each step. It only says that something has changed: the caller finds out what.
// Threads: any that holds the GIL.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "bindings/engine/tensor_caster.h"

namespace penstock::python {

namespace nb = nanobind;

class Watch {
 public:
  // The dict has this very object under the key.
  void AddItem(nb::dict dict, nb::object key, nb::object value);
  // The dict or list has as many entries as now.
  void AddSize(nb::object container);
  // The tensor has the memory, requires_grad and no hooks.
  void AddTensor(const at::Tensor& tensor);
  // The tensor has the same bytes, which the watch copies. Its version would not tell: fused
  // kernels and NumPy do not raise it. The host waits once per device for all comparisons.
  // Requires: a strided tensor.
  void AddContent(const at::Tensor& tensor);
  // All that the other one watches.
  void AddWatch(std::shared_ptr<Watch> other);

  bool IsUnchanged() const;

 private:
  struct Item {
    nb::dict dict;
    nb::object key, value;
  };
  struct Size {
    nb::object container;
    Py_ssize_t size;
  };
  struct Tensor {
    at::Tensor tensor;
    const void* data;
    bool requires_grad;
  };
  struct Content {
    at::Tensor tensor;
    std::string bytes;
  };
  struct DeviceContent {
    at::Tensor tensor;
    at::Tensor bytes;  // on the device
  };
  // By device: whether a byte of it was changed, which is not known yet.
  using Comparisons = std::map<c10::DeviceIndex, at::Tensor>;

  // Checks all but what is on devices, where it starts to compare.
  bool IsUnchangedHere(Comparisons& on_devices) const;

  std::vector<Item> items_;
  std::vector<Size> sizes_;
  std::vector<Tensor> tensors_;
  std::vector<Content> contents_;
  std::vector<DeviceContent> device_contents_;
  std::vector<std::shared_ptr<Watch>> others_;
};

}  // namespace penstock::python
