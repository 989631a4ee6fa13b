// Errors of Python code that runs on a rank's thread, where nobody can catch a Python exception.
#pragma once

#include <nanobind/nanobind.h>

#include <stdexcept>
#include <string>

#include "base/first_line.h"

namespace penstock::python {

// Calls function(), which runs Python code, and throws std::runtime_error with the first line of
// the exception's text in place of a Python exception. Threads: the caller holds the GIL.
template <class Function>
auto WithPlainErrors(Function&& function) {
  try {
    return function();
  } catch (nanobind::python_error& error) {
    const std::string text = nanobind::str(error.value()).c_str();
    const std::string type = nanobind::str(error.type().attr("__name__")).c_str();
    const std::string line(FirstLine(text));
    throw std::runtime_error(type == "Error" ? line : type + ": " + line);
  }
}

}  // namespace penstock::python
