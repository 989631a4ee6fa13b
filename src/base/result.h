// Errors as values: Result<T>, Status and the Error they carry.
//
// A function declared in a header returns Result or Status if its caller or the system is at fault.
// PENSTOCK_CHECK is for our own invariants: it throws InternalError if one does not hold.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>

namespace penstock {

enum class ErrorCode {
  kInvalidArgument,   // the caller asked for something invalid
  kInfeasible,        // well-formed, but no solution exists within the limits
  kNotFound,          // a file or name does not exist
  kUnavailable,       // a peer, a device or a transport failed
  kDeadlineExceeded,  // a wait timed out
  kInternal,          // our own bug
};

// An error has a subject: the parameter that it is about, by the name that the library has for it.
// Only the layer that knows where the value came from (an option, a key of a file, an argument of
// Python) can say how the user spells it; it sets `parameter` and adds the place to `where`.
struct Error {
  ErrorCode code = ErrorCode::kInternal;
  // What is wrong and what to do, without a line break. If there is a parameter, the message begins
  // with its value ("3: must be 2") or a colon. It names other parameters in backticks: "give
  // `data`".
  std::string message;
  std::string parameter = {};  // "chunks"; empty: the error is about no parameter
  std::string where = {};      // "a.yaml: line 3", "schedule zbv"; the outermost first

  // Returns what a person reads: "schedule zbv: chunks 3: must be 2".
  std::string line() const {
    std::string text = where.empty() ? "" : where + ": ";
    text += parameter;
    if (!parameter.empty() && !message.starts_with(':')) text += ' ';
    return text + message;
  }
};

// Returns the error with `place` in front of where it happened.
inline Error In(std::string_view place, Error error) {
  error.where =
      error.where.empty() ? std::string(place) : fmt::format("{}: {}", place, error.where);
  return error;
}

// A value or an Error, with the interface of tl::expected.
template <class T>
class [[nodiscard]] Result : public tl::expected<T, Error> {
 public:
  using tl::expected<T, Error>::expected;
};
using Status = Result<void>;

template <class... Args>
[[nodiscard]] tl::unexpected<Error> MakeError(ErrorCode code, fmt::format_string<Args...> format,
                                              Args&&... args) {
  return tl::unexpected<Error>(
      Error{code, fmt::format(format, std::forward<Args>(args)...), {}, {}});
}

template <class... Args>
[[nodiscard]] tl::unexpected<Error> InvalidArgument(fmt::format_string<Args...> format,
                                                    Args&&... args) {
  return MakeError(ErrorCode::kInvalidArgument, format, std::forward<Args>(args)...);
}

// Returns an invalid-argument error about a parameter. The format begins with the value.
template <class... Args>
[[nodiscard]] tl::unexpected<Error> InvalidParameter(std::string_view parameter,
                                                     fmt::format_string<Args...> format,
                                                     Args&&... args) {
  return tl::unexpected<Error>(Error{ErrorCode::kInvalidArgument,
                                     fmt::format(format, std::forward<Args>(args)...),
                                     std::string(parameter)});
}

template <class... Args>
[[nodiscard]] tl::unexpected<Error> NotFound(fmt::format_string<Args...> format, Args&&... args) {
  return MakeError(ErrorCode::kNotFound, format, std::forward<Args>(args)...);
}

// A bug of our own. Caught only at the end of a thread or of the program.
class InternalError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

}  // namespace penstock

#define PENSTOCK_CONCAT_INNER(a, b) a##b
#define PENSTOCK_CONCAT(a, b) PENSTOCK_CONCAT_INNER(a, b)

// PENSTOCK_TRY(auto x, Expr()): sets x to the value, or returns the error from the function.
#define PENSTOCK_TRY(declaration, expression)                                     \
  auto PENSTOCK_CONCAT(result_, __LINE__) = (expression);                         \
  if (!PENSTOCK_CONCAT(result_, __LINE__))                                        \
    return tl::unexpected(std::move(PENSTOCK_CONCAT(result_, __LINE__)).error()); \
  declaration = std::move(*PENSTOCK_CONCAT(result_, __LINE__))

// Returns the error of a Status from the calling function, if it has one.
#define PENSTOCK_TRY_STATUS(expression)                                                           \
  do {                                                                                            \
    if (auto status_ = (expression); !status_) return tl::unexpected(std::move(status_).error()); \
  } while (false)

#define PENSTOCK_CHECK(condition, ...)                                                     \
  do {                                                                                     \
    if (!(condition))                                                                      \
      throw ::penstock::InternalError(fmt::format("{}:{}: {} does not hold. {}", __FILE__, \
                                                  __LINE__, #condition,                    \
                                                  fmt::format("" __VA_ARGS__)));           \
  } while (false)
