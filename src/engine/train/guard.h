// Converts exceptions to Errors of one line.
#pragma once

#include <exception>

#include "base/exception_line.h"
#include "base/first_line.h"
#include "base/result.h"

namespace penstock {

// Changes the code of an error to kUnavailable. After the start of a run, no error is a mistake in
// the caller's arguments.
inline Status FailedRun(Status status) {
  if (!status) status.error().code = ErrorCode::kUnavailable;
  return status;
}

// Returns the function's result. Converts its exceptions and errors of several lines to Errors of
// one line.
template <class T, class Function>
Result<T> Guard(Function&& function) {
  try {
    Result<T> result = function();
    if (!result) {
      Error error = result.error();
      error.message = FirstLine(error.message);
      return tl::unexpected(std::move(error));
    }
    return result;
  } catch (const InternalError& error) {
    return MakeError(ErrorCode::kInternal, "{}", ExceptionLine(error));
  } catch (const std::exception& error) {
    return MakeError(ErrorCode::kUnavailable, "{}", ExceptionLine(error));
  }
}

}  // namespace penstock
