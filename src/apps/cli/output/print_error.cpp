#include "cli/output/print_error.h"

#include <cstdio>

#include "base/text/quote.h"
#include "cli/command/command.h"

namespace penstock {

void PrintError(const std::string& message) {
  constexpr std::size_t kLongest = 4000;
  const bool is_cut_off = message.size() > kLongest;
  fmt::print(stderr, "penstock: error: {}{}\n", Printable(message.substr(0, kLongest)),
             is_cut_off ? "..." : "");
}

int ExitCodeOf(const Error& error) {
  switch (error.code) {
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kInfeasible:
    case ErrorCode::kNotFound:
      return kExitUsage;
    default:
      return kExitFailed;
  }
}

}  // namespace penstock
