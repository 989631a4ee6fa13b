#include "plan/search/framework.h"

#include <algorithm>

#include "base/text/nearest.h"
#include "base/text/quote.h"

namespace penstock {
namespace {

// The schedules of torch.distributed.pipelining, to which torchtitan adds tensor and context
// parallelism; every schedule that `python -m penstock.megatron` runs, and Megatron-Core's
// distributed optimizer.
const std::vector<Framework>& Frameworks() {
  static const std::vector<std::string> torch = {
      "gpipe", "1f1b", "interleaved", "looped-bfs", "interleaved-zb", "zbv", "dualpipev"};
  static const std::vector<Framework> frameworks = {
      {.name = kEngineFramework,
       .exchanges = {ContextExchange::kAllGather, ContextExchange::kUlysses,
                     ContextExchange::kRing},
       .implementations = {"penstock"},
       .check = &CheckPenstock},
      {.name = "torchtitan",
       .schedules = torch,
       .zeros = {1, 3},
       .exchanges = {ContextExchange::kAllGather},
       .implementations = {"torch-compile", "torch"},
       .check = &CheckTorchtitan},
      {.name = "torch",
       .schedules = torch,
       .most_tensor = 1,
       .most_context = 1,
       .implementations = {"torch", "torch-compile"}},
      {.name = "megatron",
       .schedules = {"gpipe", "1f1b", "interleaved", "looped-bfs", "zb-h1", "zb-h2", "zb-auto",
                     "interleaved-zb", "zbv", "zbv-formatted", "v-half", "v-min", "v-1f1b",
                     "v-auto", "dualpipev", "hanayo"},
       // All together take ten times as long to search.
       .usual = {"1f1b", "interleaved", "zb-h1", "interleaved-zb", "zbv", "v-half"},
       .most_zero = 1,
       .implementations = {"transformer-engine", "megatron"},
       .options = {.dispatchers = {Dispatcher::kAllToAll, Dispatcher::kDeepEp,
                                   Dispatcher::kHybridEp},
                   .graphs_layers = true,
                   .overlaps_experts = true,
                   .saves_states = true},
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

Framework FrameworkOf(std::string_view implementation) {
  return *std::ranges::find_if(Frameworks(), [&](const Framework& framework) {
    return std::ranges::find(framework.implementations, implementation) !=
           framework.implementations.end();
  });
}

}  // namespace penstock
