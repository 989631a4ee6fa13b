#include "plan/search/framework.h"

#include <algorithm>

#include "base/text/nearest.h"
#include "base/text/quote.h"

namespace penstock {
namespace {

// Megatron-Core's schedules.py, and its distributed optimizer; the schedules of
// torch.distributed.pipelining, to which torchtitan adds tensor and context parallelism.
const std::vector<Framework>& Frameworks() {
  static const std::vector<std::string> torch = {
      "gpipe", "1f1b", "interleaved", "looped-bfs", "interleaved-zb", "zbv", "dualpipev"};
  static const std::vector<Framework> frameworks = {
      {.name = "penstock",
       .most_tensor = 1,
       .most_context = 1,
       .implementation = "penstock",
       .check = &CheckPenstock},
      {.name = "torch",
       .schedules = torch,
       .most_tensor = 1,
       .most_context = 1,
       .implementation = "torch"},
      {.name = "torchtitan",
       .schedules = torch,
       .implementation = "torch-compile",
       .check = &CheckTorchtitan},
      {.name = "megatron",
       .schedules = {"1f1b", "interleaved"},
       .most_zero = 1,
       .implementation = "transformer-engine",
       .check = &CheckMegatron},
  };
  return frameworks;
}

}  // namespace

std::vector<std::string_view> FrameworkNames() {
  std::vector<std::string_view> names;
  for (const Framework& framework : Frameworks()) names.push_back(framework.name);
  return names;
}

Result<Framework> FindFramework(std::string_view name) {
  const auto found = std::ranges::find(Frameworks(), name, &Framework::name);
  if (found != Frameworks().end()) return *found;
  return NotFound("{} is none of {}{}", Quote(name), fmt::join(FrameworkNames(), ", "),
                  Suggestion(name, FrameworkNames()));
}

}  // namespace penstock
