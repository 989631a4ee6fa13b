// What a training framework can run, as far as a plan must know.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "plan/search/framework_limits.h"

namespace penstock {

// What some frameworks may do with each division, beyond its ranks.
struct KernelOptions {
  std::vector<Dispatcher> dispatchers = {};  // of experts; empty: the scenario's
  bool graphs_layers = false;                // in CUDA graphs, except for the experts' matmuls
  bool overlaps_experts = false;  // exchanges of experts with another microbatch's compute
  // Moments of fewer bits, and states in the memory of the host.
  bool saves_states = false;
};

struct Framework {
  std::string_view name = {};               // empty: none, which runs everything
  std::vector<std::string> schedules = {};  // that it runs; empty: all
  // Those that are searched unless the user names others; empty: all that it runs.
  std::vector<std::string> usual = {};
  int most_tensor = 0, most_context = 0;  // 0: no bound
  std::vector<int> zeros = {1};           // that are searched where there are replicas
  int most_zero = 3;
  // What context ranks may exchange, unless the user says it.
  std::vector<ContextExchange> exchanges = {ContextExchange::kRing};
  // That price its plans, since they have its kernels; the usual one first.
  std::vector<std::string_view> implementations = {};
  KernelOptions options = {};
  Status (*check)(const DividedModel&) = nullptr;  // null: it runs every division
};

// `penstock train`.
inline constexpr std::string_view kEngineFramework = "penstock";

std::vector<std::string_view> FrameworkNames();

// Errors: kNotFound, with the names.
Result<Framework> FindFramework(std::string_view name);

// Returns the framework that has an implementation's kernels. Requires: there is such an
// implementation.
Framework FrameworkOf(std::string_view implementation);

}  // namespace penstock
