#include "bindings/engine/same_value.h"

#include <nanobind/nanobind.h>

#include <bit>
#include <cstdint>
#include <string_view>

namespace penstock::python {
namespace {

namespace nb = nanobind;

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

}  // namespace

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

}  // namespace penstock::python
