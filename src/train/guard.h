// Where exceptions of torch end: they become Errors of one line.
#pragma once

#include <exception>
#include <string>

#include "base/result.h"

namespace penstock {

// The first line: torch's messages carry a stack behind it.
inline std::string FirstLine(const std::string& text) { return text.substr(0, text.find('\n')); }

// An error during a run fails the run, whatever it says of the caller's arguments.
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
    return MakeError(ErrorCode::kInternal, "{}", FirstLine(error.what()));
  } catch (const std::bad_alloc&) {
    return MakeError(ErrorCode::kUnavailable, "out of memory: give a smaller model or batch");
  } catch (const std::exception& error) {
    return MakeError(ErrorCode::kUnavailable, "{}", FirstLine(error.what()));
  }
}

}  // namespace penstock
