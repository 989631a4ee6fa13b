// What a whole run of a plan takes.
#pragma once

#include "scenario/price/step_estimate.h"

namespace penstock {

struct TrainingRun {
  double tokens = 0;          // 0: not asked
  double price_per_hour = 0;  // of a device, in any currency; 0: not asked

  // Idle devices are paid for; failures and checkpoints take their time.
  double days(const StepEstimate& step) const {
    constexpr double kDay = 24 * 60 * 60;
    return tokens / step.expected_tokens_per_second() / kDay;
  }
  double cost(const StepEstimate& step) const {
    constexpr double kHours = 24;
    return days(step) * kHours * step.devices * price_per_hour;
  }
};

}  // namespace penstock
