// Parts of the extension module. Each adds its classes.
#pragma once

#include <nanobind/nanobind.h>

#include <utility>

#include "base/result.h"

namespace penstock::python {

namespace nb = nanobind;

// The Python exception penstock.Error, a ValueError: its text is the one-line message.
class PythonError : public std::runtime_error {
 public:
  explicit PythonError(const Error& error) : std::runtime_error(error.message) {}
};

// Returns the value, or raises penstock.Error.
template <class T>
T ValueOf(Result<T> result) {
  if (!result) throw PythonError(result.error());
  return std::move(*result);
}
inline void Require(const Status& status) {
  if (!status) throw PythonError(status.error());
}

void AddScheduleTypes(nb::module_& module);
void AddCostTypes(nb::module_& module);
void AddSimulationTypes(nb::module_& module);

}  // namespace penstock::python
