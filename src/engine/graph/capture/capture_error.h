// CaptureError: what stops a capture.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <utility>

namespace penstock {

// Thrown through the captured code to stop a capture. what() says what was rejected.
class CaptureError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

template <class... Args>
[[noreturn]] void Reject(fmt::format_string<Args...> format, Args&&... args) {
  throw CaptureError(fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace penstock
