// Metrics and descriptions of made-up runs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "monitor/metrics.h"
#include "monitor/run_description.h"

namespace penstock {

// A step of half a second, whose ranks are busy for these times.
inline StepMetric MadeStep(std::int64_t step, const std::vector<double>& busy) {
  StepMetric metric = {.step = step,
                       .loss = 4 - 0.01 * static_cast<double>(step),
                       .bubble = 0.25,
                       .seconds = 0.5 * static_cast<double>(step + 1)};
  for (const double seconds : busy) metric.ranks.push_back({seconds, 1 - seconds / 0.5, 1 << 20});
  return metric;
}

inline std::vector<StepMetric> MadeSteps(std::int64_t count, const std::vector<double>& busy) {
  std::vector<StepMetric> metrics;
  for (std::int64_t step = 0; step < count; ++step) metrics.push_back(MadeStep(step, busy));
  return metrics;
}

inline RunDescription MadeRun(const std::string& name, std::int64_t steps) {
  RunDescription run;
  run.name = name;
  run.steps = steps;
  run.tokens_per_step = 1000;
  return run;
}

inline bool HasText(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace penstock
