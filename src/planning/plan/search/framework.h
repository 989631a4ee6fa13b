// What a training framework can run, as far as a plan must know.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "plan/search/framework_limits.h"

namespace penstock {

struct Framework {
  std::string_view name;
  std::vector<std::string> schedules = {};  // that it runs; empty: all
  // Those that are searched unless the user names others; empty: all that it runs.
  std::vector<std::string> usual = {};
  int most_tensor = 0, most_context = 0;  // 0: no bound
  int most_zero = 3;
  // What context ranks may exchange, unless the user says it.
  std::vector<ContextExchange> exchanges = {ContextExchange::kRing};
  std::string_view implementation;                 // that prices it, unless the user names one
  Status (*check)(const DividedModel&) = nullptr;  // null: it runs every division
};

// `penstock train`, whose plans are asked for if neither a framework nor an implementation is
// given.
inline constexpr std::string_view kEngineFramework = "penstock";

std::vector<std::string_view> FrameworkNames();

// Errors: kNotFound, with the names.
Result<Framework> FindFramework(std::string_view name);

}  // namespace penstock
