#include "plan/search/indivisible.h"

#include <fmt/format.h>

#include <string>
#include <tuple>

namespace penstock {

std::optional<Error> IndivisibleDimension(const DivisionQuestion& question) {
  const Scenario& fixed = *question.scenario;
  const std::tuple<const char*, std::optional<int>> dimensions[] = {{"tensor", fixed.tensor},
                                                                    {"context", fixed.context},
                                                                    {"ranks", fixed.ranks},
                                                                    {"data_parallel", fixed.data}};
  int left = question.devices;
  std::string taken;  // "`tensor` 8 and `ranks` 2"
  for (const auto& [name, given] : dimensions) {
    if (!given) continue;
    if (left % *given != 0) {
      const std::string of =
          taken.empty() ? "" : fmt::format(" left of {} by {}", question.devices, taken);
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("{}: does not divide the {} devices{}", *given, left, of), name};
    }
    left /= *given;
    taken += fmt::format("{}`{}` {}", taken.empty() ? "" : " and ", name, *given);
  }
  if (fixed.data && question.global_batch % *fixed.data != 0) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{}: does not divide the {} samples of a step (`global_batch`)",
                             *fixed.data, question.global_batch),
                 "data_parallel"};
  }
  return std::nullopt;
}

}  // namespace penstock
