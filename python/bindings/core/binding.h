// Shared by the parts of the extension module penstock._core.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "scenario/spelling.h"

namespace penstock::python {

namespace nb = nanobind;
using nb::literals::operator""_a;

// Returns the text with its line breaks as \n: names of files may contain them.
inline std::string OneLine(std::string text) {
  for (std::size_t at = text.find('\n'); at != std::string::npos; at = text.find('\n', at)) {
    text.replace(at, 1, "\\n");
  }
  return text;
}

// The Python exception penstock.Error, a ValueError. Its text is the one-line message.
class PythonError : public std::runtime_error {
 public:
  explicit PythonError(const Error& error)
      : std::runtime_error(OneLine(SpellMentions(
            error.line(), [](std::string_view name) { return std::string(name); }))) {}
};

// Raises an error about a text that Python wrote itself, on one line, which is of no use to users.
[[noreturn]] inline void ThrowWithoutLine(Error error) {
  error.where.clear();
  throw PythonError(error);
}

// Returns the value, or raises penstock.Error.
template <class T>
T ValueOf(Result<T> result) {
  if (!result) throw PythonError(result.error());
  return std::move(*result);
}
inline void Require(const Status& status) {
  if (!status) throw PythonError(status.error());
}
template <class... Args>
[[noreturn]] void Refuse(fmt::format_string<Args...> format, Args&&... args) {
  throw PythonError(
      {ErrorCode::kInvalidArgument, fmt::format(format, std::forward<Args>(args)...)});
}

// The bytes of plain data, one row per element. The Python code views them as structured arrays.
using Bytes = nb::ndarray<nb::numpy, const std::uint8_t, nb::ndim<2>>;
using BytesIn = nb::ndarray<const std::uint8_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

// Returns a read-only view of `elements`, which `owner` keeps alive and never changes.
template <class T>
Bytes BytesOf(const std::vector<T>& elements, nb::handle owner) {
  static_assert(std::is_trivially_copyable_v<T>);
  return Bytes(reinterpret_cast<const std::uint8_t*>(elements.data()), {elements.size(), sizeof(T)},
               owner);
}

// Each adds the classes and functions of one file.
void AddScheduleTypes(nb::module_& module);
void AddCatalog(nb::module_& module);
void AddCostTypes(nb::module_& module);
void AddRunTypes(nb::module_& module);
void AddExplanation(nb::module_& module);
void AddReports(nb::module_& module);
void AddScenarios(nb::module_& module);
void AddPlans(nb::module_& module);

}  // namespace penstock::python
