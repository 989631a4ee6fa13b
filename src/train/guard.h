// Converts torch's exceptions to Errors of one line.
#pragma once

#include <exception>

#include "base/exception_line.h"
#include "base/first_line.h"
#include "base/result.h"

namespace penstock {

// An error during a run is a failure of the run, whatever it says about the caller's arguments.
inline Status FailedRun(Status status) {
  if (!status) status.error().code = ErrorCode::kUnavailable;
  return status;
}

template <class T, class Function>
Result<T> Guard(Function&& function) {
  try {
    Result<T> result = function();
    if (!result) {
      return tl::unexpected(Error{result.error().code, FirstLine(result.error().message)});
    }
    return result;
  } catch (const InternalError& error) {
    return MakeError(ErrorCode::kInternal, "{}", ExceptionLine(error));
  } catch (const std::exception& error) {
    return MakeError(ErrorCode::kUnavailable, "{}", ExceptionLine(error));
  }
}

}  // namespace penstock
