// Errors of the library as exceptions of C++, which bindings turn into Python's.
#pragma once

#include <stdexcept>
#include <utility>

#include "base/result.h"

namespace penstock::python {

// Throw std::runtime_error with the error's line.
inline void ThrowIfFailed(const Status& status) {
  if (!status) throw std::runtime_error(status.error().line());
}
template <class T>
T ValueOrThrow(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().line());
  return *std::move(result);
}

}  // namespace penstock::python
