#include "runtime/processes/process_timeout.h"

#include <cstdlib>

#include "base/text/numbers.h"
#include "base/text/quote.h"

namespace penstock {

Result<std::chrono::duration<double>> ProcessTimeout() {
  constexpr const char* kName = "PENSTOCK_PROCESS_TIMEOUT";
  constexpr const char* kFormerName = "PENSTOCK_HOST_TIMEOUT";
  constexpr double kDefault = 20, kLeast = 1, kMost = 1e6;
  const char* const variable = std::getenv(kName) != nullptr ? kName : kFormerName;
  const char* const text = std::getenv(variable);
  if (text == nullptr) return std::chrono::duration<double>(kDefault);
  const Result<double> seconds = ParseNumber(text);
  if (seconds && *seconds >= kLeast && *seconds <= kMost) {
    return std::chrono::duration<double>(*seconds);
  }
  return InvalidArgument("{}: {} is not a number of seconds from {} to {}", variable, Quote(text),
                         kLeast, kMost);
}

}  // namespace penstock
