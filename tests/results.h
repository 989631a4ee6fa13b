// What tests expect of results: their value, or a refusal.
#pragma once

#include <gtest/gtest.h>

#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"

namespace penstock {

// Returns the value. An error fails the test with its line.
template <class T>
T ValueOf(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().line());
  return *std::move(result);
}

// Returns the line of an error; empty for a value.
template <class T>
std::string LineOf(const Result<T>& result) {
  return result ? std::string() : result.error().line();
}

// Returns whether the result is no error.
template <class T>
::testing::AssertionResult Succeeds(const Result<T>& result) {
  if (result) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << result.error().line();
}

// Returns whether the text contains `part`.
inline ::testing::AssertionResult Contains(std::string_view text, std::string_view part) {
  if (text.find(part) != text.npos) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "'" << part << "' is not in: " << text;
}

// Returns whether the result is an error of the kind whose line contains `part`.
template <class T>
::testing::AssertionResult Refused(const Result<T>& result, std::string_view part,
                                   std::optional<ErrorCode> code = {}) {
  if (result) return ::testing::AssertionFailure() << "accepted; expected '" << part << "'";
  if (code && result.error().code != *code) {
    return ::testing::AssertionFailure() << "another kind of error: " << result.error().line();
  }
  return Contains(result.error().line(), part);
}

// Returns whether the result is an error of the kind with exactly this line.
template <class T>
::testing::AssertionResult FailsWith(const Result<T>& result, ErrorCode code,
                                     std::string_view line) {
  if (!result && result.error().line() != line) {
    return ::testing::AssertionFailure() << "another line: " << result.error().line();
  }
  return Refused(result, line, code);
}

}  // namespace penstock
