// Watch: notices changes of Python objects that compiled stages assume to stay unchanged.
//
// Checking takes some nanoseconds per entry, and for contents the time to read them, so that it can
// run before each step. Entries have numbers, by which changed() names them.
// Threads: any that holds the GIL.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "bindings/engine/tensor_caster.h"

namespace penstock::python {

namespace nb = nanobind;

// What a Watch compares.
class WatchEntry {
 public:
  explicit WatchEntry(int number) : number_(number) {}
  virtual ~WatchEntry() = default;
  WatchEntry(const WatchEntry&) = delete;
  WatchEntry& operator=(const WatchEntry&) = delete;

  virtual bool IsUnchanged() = 0;
  // Appends the numbers of what has changed.
  virtual void AppendChanged(std::vector<int>& numbers) {
    if (!IsUnchanged()) numbers.push_back(number_);
  }

 private:
  const int number_;
};

// Entries of one dict, or of the namespace of a class.
class DictEntries final : public WatchEntry {
 public:
  explicit DictEntries(nb::object holder);
  // `value` is invalid if the dict does not have the key.
  void AddItem(int number, nb::object key, nb::object value);
  // The dict has these of the keys that `read`, a set, contains; None: all keys, in order.
  void AddKeys(int number, nb::object read);

  bool IsUnchanged() override;
  void AppendChanged(std::vector<int>& numbers) override;

 private:
  struct Item {
    int number;
    nb::object key, value;
    bool IsUnchanged(PyObject* dict);
  };
  struct Keys {
    int number;
    nb::object read;
    std::vector<nb::object> keys;
  };
  std::vector<nb::object> KeysIn(const nb::object& read) const;
  bool IsUnchanged(const Keys& keys) const;
  // Whether nothing at all has changed since the last comparison, if this Python tells.
  bool IsUntouched() const;
  void Touch();

  nb::object holder_;
  nb::object dict_;
  std::uint64_t version_ = 0;
  std::vector<Item> items_;
  std::vector<Keys> keys_;
};

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
  // Adds Entry(number, value).
  template <class Entry, class Value>
  int Add(Value value);
  // Checks all but what is on devices, where it starts to compare.
  bool IsUnchangedHere(Comparisons& on_devices) const;

  int count_ = 0;
  std::vector<std::unique_ptr<WatchEntry>> entries_;
  std::map<PyObject*, DictEntries*> dicts_;  // in entries_, by holder
  std::vector<DeviceContent> device_contents_;
  std::vector<std::shared_ptr<Watch>> others_;
};

}  // namespace penstock::python
