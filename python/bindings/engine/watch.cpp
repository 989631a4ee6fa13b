#include "bindings/engine/watch.h"

#include <ATen/ops/any.h>
#include <ATen/ops/item.h>
#include <ATen/ops/logical_or.h>
#include <ATen/ops/ne.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <bit>
#include <string>
#include <string_view>
#include <utility>

namespace penstock::python {
namespace {

bool SameBits(double one, double other) {
  return std::bit_cast<std::uint64_t>(one) == std::bit_cast<std::uint64_t>(other) ||
         (one != one && other != other);
}

bool Equal(PyObject* one, PyObject* other) {
  const int equal = PyObject_RichCompareBool(one, other, Py_EQ);
  if (equal < 0) PyErr_Clear();
  return equal == 1;
}

bool EqualTexts(PyObject* one, PyObject* other) {
  const nb::object text = nb::steal(PyObject_Repr(one)), of_other = nb::steal(PyObject_Repr(other));
  PyErr_Clear();
  return text.is_valid() && of_other.is_valid() && Equal(text.ptr(), of_other.ptr());
}

// Whether they are one object, or equal values of one type whose values never change: numbers
// (0.0 and -0.0 differ, NaN equals NaN), texts, tuples, slices, bound methods. Any other two
// objects differ. Requires: the caller holds the GIL.
bool SameValue(PyObject* one, PyObject* other);

bool SameElements(PyObject* one, PyObject* other) {
  const Py_ssize_t size = PyTuple_GET_SIZE(one);
  if (size != PyTuple_GET_SIZE(other)) return false;
  for (Py_ssize_t i = 0; i < size; ++i) {
    if (!SameValue(PyTuple_GET_ITEM(one, i), PyTuple_GET_ITEM(other, i))) return false;
  }
  return true;
}

// Types of other modules whose objects never change.
bool IsImmutable(PyTypeObject* type) {
  const std::string_view name = type->tp_name;
  return name == "torch.device" || name == "decimal.Decimal" || name == "fractions.Fraction" ||
         name == "Fraction" || name == "datetime.timedelta";
}

bool IsNumPyScalar(PyObject* value) {
  const std::string_view name = Py_TYPE(value)->tp_name;
  return name.starts_with("numpy.") && name != "numpy.ndarray" && !PySequence_Check(value);
}

bool SameValue(PyObject* one, PyObject* other) {
  if (one == other) return true;
  if (one == nullptr || other == nullptr || Py_TYPE(one) != Py_TYPE(other)) return false;
  PyTypeObject* const type = Py_TYPE(one);
  if (type == &PyFloat_Type) return SameBits(PyFloat_AS_DOUBLE(one), PyFloat_AS_DOUBLE(other));
  if (type == &PyComplex_Type) {
    const Py_complex x = PyComplex_AsCComplex(one), y = PyComplex_AsCComplex(other);
    return SameBits(x.real, y.real) && SameBits(x.imag, y.imag);
  }
  if (type == &PyLong_Type || type == &PyUnicode_Type || type == &PyBytes_Type ||
      type == &PyRange_Type) {
    return Equal(one, other);
  }
  if (PyTuple_CheckExact(one) || std::string_view(type->tp_name) == "torch.Size") {
    return SameElements(one, other);
  }
  if (type == &PyFrozenSet_Type) return Equal(one, other) && EqualTexts(one, other);
  if (type == &PyMethod_Type) {
    return PyMethod_GET_SELF(one) == PyMethod_GET_SELF(other) &&
           PyMethod_GET_FUNCTION(one) == PyMethod_GET_FUNCTION(other);
  }
  if (type == &PySlice_Type || IsNumPyScalar(one)) return EqualTexts(one, other);
  return IsImmutable(type) && EqualTexts(one, other);
}

// Python 3.12 and later do not count the changes of a dict.
#if PY_VERSION_HEX < 0x030C0000
constexpr bool kHasVersions = true;
std::uint64_t VersionOf(PyObject* dict) {
  return reinterpret_cast<PyDictObject*>(dict)->ma_version_tag;
}
#else
constexpr bool kHasVersions = false;
std::uint64_t VersionOf(PyObject*) { return 0; }
#endif

nb::object DictOf(const nb::object& holder) {
  if (!PyType_Check(holder.ptr())) return holder;
  auto* const type = reinterpret_cast<PyTypeObject*>(holder.ptr());
#if PY_VERSION_HEX >= 0x030C0000
  return nb::steal(PyType_GetDict(type));
#else
  return nb::borrow(type->tp_dict);
#endif
}

// Returns the members as a list of new references; of dicts, the keys and the values.
nb::object MembersOf(PyObject* container) {
  nb::object members = nb::steal(PySequence_List(container));
  if (members.is_valid() && PyObject_HasAttrString(container, "keys")) {
    const nb::object values = nb::steal(PyObject_CallMethod(container, "values", nullptr));
    const nb::object list = nb::steal(values.is_valid() ? PySequence_List(values.ptr()) : nullptr);
    if (!list.is_valid()) return {};
    members = nb::steal(PySequence_Concat(members.ptr(), list.ptr()));
  }
  return members;
}

class Members final : public WatchEntry {
 public:
  Members(int number, nb::object container)
      : WatchEntry(number),
        container_(std::move(container)),
        members_(MembersOf(container_.ptr())) {
    if (!members_.is_valid()) throw nb::python_error();
    is_dict_ = PyDict_CheckExact(container_.ptr());
    Touch();
  }

  bool IsUnchanged() override {
    PyObject* const container = container_.ptr();
    if (PyList_CheckExact(container) || PyTuple_CheckExact(container)) {
      return AreMembers(PySequence_Fast_ITEMS(container), PySequence_Fast_GET_SIZE(container));
    }
    if (is_dict_ && kHasVersions && VersionOf(container) == version_) return true;
    const nb::object now = MembersOf(container);
    if (!now.is_valid()) {
      PyErr_Clear();
      return false;
    }
    if (!AreMembers(PySequence_Fast_ITEMS(now.ptr()), PyList_GET_SIZE(now.ptr()))) return false;
    Touch();
    return true;
  }

 private:
  bool AreMembers(PyObject** items, Py_ssize_t size) const {
    if (size != PyList_GET_SIZE(members_.ptr())) return false;
    for (Py_ssize_t i = 0; i < size; ++i) {
      if (!SameValue(items[i], PyList_GET_ITEM(members_.ptr(), i))) return false;
    }
    return true;
  }
  void Touch() {
    if (is_dict_) version_ = VersionOf(container_.ptr());
  }

  nb::object container_, members_;
  bool is_dict_ = false;
  std::uint64_t version_ = 0;
};

class Size final : public WatchEntry {
 public:
  Size(int number, nb::object container)
      : WatchEntry(number), container_(std::move(container)), size_(Now()) {}
  bool IsUnchanged() override { return Now() == size_; }

 private:
  Py_ssize_t Now() const { return PyObject_Size(container_.ptr()); }
  nb::object container_;
  Py_ssize_t size_;
};

class Cell final : public WatchEntry {
 public:
  Cell(int number, nb::object cell)
      : WatchEntry(number), cell_(std::move(cell)), value_(nb::borrow(Now())) {}
  bool IsUnchanged() override { return SameValue(Now(), value_.ptr()); }

 private:
  PyObject* Now() const { return PyCell_GET(cell_.ptr()); }
  nb::object cell_, value_;
};

class Class final : public WatchEntry {
 public:
  Class(int number, nb::object value)
      : WatchEntry(number),
        value_(std::move(value)),
        type_(Py_TYPE(value_.ptr())),
        dict_(nb::borrow(Dict())) {}
  bool IsUnchanged() override { return Py_TYPE(value_.ptr()) == type_ && Dict() == dict_.ptr(); }

 private:
  // Returns its __dict__, which may be assigned, too.
  PyObject* Dict() const {
    PyObject** const place = _PyObject_GetDictPtr(value_.ptr());
    return place == nullptr ? nullptr : *place;
  }
  nb::object value_;
  PyTypeObject* type_;
  nb::object dict_;
};

class Function final : public WatchEntry {
 public:
  Function(int number, nb::object function)
      : WatchEntry(number), function_(std::move(function)), kept_(Now()) {}
  bool IsUnchanged() override {
    PyObject* const function = function_.ptr();
    return PyFunction_GET_CODE(function) == kept_[0].ptr() &&
           PyFunction_GET_DEFAULTS(function) == kept_[1].ptr() &&
           PyFunction_GET_KW_DEFAULTS(function) == kept_[2].ptr();
  }

 private:
  std::vector<nb::object> Now() const {
    PyObject* const function = function_.ptr();
    return {nb::borrow(PyFunction_GET_CODE(function)),
            nb::borrow(PyFunction_GET_DEFAULTS(function)),
            nb::borrow(PyFunction_GET_KW_DEFAULTS(function))};
  }
  nb::object function_;
  std::vector<nb::object> kept_;
};

class Call final : public WatchEntry {
 public:
  Call(int number, nb::callable get) : WatchEntry(number), get_(std::move(get)), value_(get_()) {}
  bool IsUnchanged() override {
    const nb::object now = nb::steal(PyObject_CallNoArgs(get_.ptr()));
    if (!now.is_valid()) PyErr_Clear();
    return SameValue(now.ptr(), value_.ptr());
  }

 private:
  nb::callable get_;
  nb::object value_;
};

class TensorForm final : public WatchEntry {
 public:
  TensorForm(int number, const at::Tensor& tensor)
      : WatchEntry(number),
        tensor_(tensor),
        data_(DataOf(tensor)),
        sizes_(tensor.sizes().vec()),
        strides_(StridesOf(tensor)),
        dtype_(tensor.scalar_type()),
        requires_grad_(tensor.requires_grad()),
        has_hooks_(HasHooks(tensor)) {}
  bool IsUnchanged() override {
    return DataOf(tensor_) == data_ && tensor_.requires_grad() == requires_grad_ &&
           HasHooks(tensor_) == has_hooks_ && tensor_.sizes().equals(sizes_) &&
           tensor_.scalar_type() == dtype_ && StridesOf(tensor_) == strides_;
  }

 private:
  static const void* DataOf(const at::Tensor& tensor) {
    return tensor.layout() == at::kStrided && tensor.has_storage() ? tensor.const_data_ptr()
                                                                   : nullptr;
  }
  static std::vector<std::int64_t> StridesOf(const at::Tensor& tensor) {
    return tensor.layout() == at::kStrided ? tensor.strides().vec() : std::vector<std::int64_t>();
  }
  static bool HasHooks(const at::Tensor& tensor) {
    namespace autograd = torch::autograd::impl;
    if (autograd::get_autograd_meta(tensor) == nullptr) return false;
    return !autograd::hooks(tensor).empty() || autograd::post_acc_grad_hooks(tensor) != nullptr;
  }

  at::Tensor tensor_;
  const void* data_;
  std::vector<std::int64_t> sizes_, strides_;
  at::ScalarType dtype_;
  bool requires_grad_, has_hooks_;
};

class Content final : public WatchEntry {
 public:
  Content(int number, const at::Tensor& tensor)
      : WatchEntry(number), tensor_(tensor), bytes_(Now()) {}
  bool IsUnchanged() override { return Now() == bytes_; }

 private:
  // Returns the memory from the tensor's first element to its last one.
  std::string_view Now() const {
    if (tensor_.numel() == 0) return {};
    std::int64_t last = 0;
    for (std::int64_t dim = 0; dim < tensor_.dim(); ++dim) {
      last += (tensor_.size(dim) - 1) * tensor_.stride(dim);
    }
    return {static_cast<const char*>(tensor_.const_data_ptr()),
            static_cast<std::size_t>(last + 1) * tensor_.element_size()};
  }
  at::Tensor tensor_;
  std::string bytes_;
};

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

DictEntries::DictEntries(nb::object holder)
    : WatchEntry(-1), holder_(std::move(holder)), dict_(DictOf(holder_)) {
  Touch();
}

void DictEntries::AddItem(int number, nb::object key, nb::object value) {
  items_.push_back({number, std::move(key), std::move(value)});
}

void DictEntries::AddKeys(int number, nb::object read) {
  std::vector<nb::object> keys = KeysIn(read);
  keys_.push_back({number, std::move(read), std::move(keys)});
}

std::vector<nb::object> DictEntries::KeysIn(const nb::object& read) const {
  std::vector<nb::object> keys;
  PyObject *key = nullptr, *value = nullptr;
  Py_ssize_t position = 0;
  while (PyDict_Next(dict_.ptr(), &position, &key, &value) != 0) {
    if (read.is_none() || PySet_Contains(read.ptr(), key) == 1) keys.push_back(nb::borrow(key));
  }
  return keys;
}

bool DictEntries::IsUnchanged(const Keys& keys) const {
  const std::vector<nb::object> now = KeysIn(keys.read);
  return std::ranges::equal(now, keys.keys, [](const nb::object& one, const nb::object& other) {
    return SameValue(one.ptr(), other.ptr());
  });
}

bool DictEntries::Item::IsUnchanged(PyObject* dict) {
  return SameValue(PyDict_GetItem(dict, key.ptr()), value.ptr());
}

bool DictEntries::IsUntouched() const { return kHasVersions && VersionOf(dict_.ptr()) == version_; }

void DictEntries::Touch() { version_ = VersionOf(dict_.ptr()); }

bool DictEntries::IsUnchanged() {
  if (IsUntouched()) return true;
  PyObject* const dict = dict_.ptr();
  const bool unchanged =
      std::ranges::all_of(items_, [&](Item& each) { return each.IsUnchanged(dict); }) &&
      std::ranges::all_of(keys_, [&](const Keys& each) { return IsUnchanged(each); });
  if (unchanged) Touch();
  return unchanged;
}

void DictEntries::AppendChanged(std::vector<int>& numbers) {
  if (IsUntouched()) return;
  for (Item& each : items_) {
    if (!each.IsUnchanged(dict_.ptr())) numbers.push_back(each.number);
  }
  for (const Keys& each : keys_) {
    if (!IsUnchanged(each)) numbers.push_back(each.number);
  }
}

DictEntries& Watch::EntriesOf(const nb::object& holder) {
  DictEntries*& entries = dicts_[holder.ptr()];
  if (entries == nullptr) {
    entries_.push_back(std::make_unique<DictEntries>(holder));
    entries = static_cast<DictEntries*>(entries_.back().get());
  }
  return *entries;
}

template <class Entry, class Value>
int Watch::Add(Value value) {
  entries_.push_back(std::make_unique<Entry>(count_, std::move(value)));
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
int Watch::AddMembers(nb::object container) { return Add<Members>(std::move(container)); }
int Watch::AddSize(nb::object container) { return Add<Size>(std::move(container)); }
int Watch::AddCell(nb::object cell) { return Add<Cell>(std::move(cell)); }
int Watch::AddClass(nb::object value) { return Add<Class>(std::move(value)); }
int Watch::AddFunction(nb::object function) { return Add<Function>(std::move(function)); }
int Watch::AddCall(nb::callable get) { return Add<Call>(std::move(get)); }
int Watch::AddTensor(const at::Tensor& tensor) { return Add<TensorForm>(tensor); }

int Watch::AddContent(const at::Tensor& tensor) {
  if (tensor.is_cpu()) return Add<Content>(tensor);
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
