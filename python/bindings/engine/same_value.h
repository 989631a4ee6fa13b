// Whether Python code computes the same with two objects.
#pragma once

#include <Python.h>

namespace penstock::python {

// Whether they are one object, or equal values of one type whose values never change: numbers
// (0.0 and -0.0 differ, NaN equals NaN), texts, tuples, slices, bound methods. Any other two
// objects differ. Requires: the caller holds the GIL.
bool SameValue(PyObject* one, PyObject* other);

}  // namespace penstock::python
