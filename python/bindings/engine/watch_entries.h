// What a Watch compares. Threads: one that holds the GIL.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bindings/engine/tensor_caster.h"

namespace penstock::python {

namespace nb = nanobind;

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
  Py_ssize_t size_ = -1;
  std::vector<Item> items_;
  std::vector<Keys> keys_;
};

// The members of a list, tuple, dict, set or deque, in order.
std::unique_ptr<WatchEntry> WatchMembers(int number, nb::object container);
std::unique_ptr<WatchEntry> WatchSize(int number, nb::object container);
// The content of a cell of a closure.
std::unique_ptr<WatchEntry> WatchCell(int number, nb::object cell);
std::unique_ptr<WatchEntry> WatchClass(int number, nb::object value);
// The code and the defaults of a function.
std::unique_ptr<WatchEntry> WatchFunction(int number, nb::object function);
// What get() returns.
std::unique_ptr<WatchEntry> WatchCall(int number, nb::callable get);
// The memory, shape and dtype of a tensor, whether it requires a gradient and whether it has hooks.
std::unique_ptr<WatchEntry> WatchTensor(int number, const at::Tensor& tensor);
// The bytes of a tensor on the CPU.
std::unique_ptr<WatchEntry> WatchContent(int number, const at::Tensor& tensor);

}  // namespace penstock::python
