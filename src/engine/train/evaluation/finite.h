// Results that are not finite (NaN or Inf) are failures, not results.
#pragma once

#include <string>

#include "base/result.h"
#include "train/evaluation/language_model.h"

namespace penstock {

// Errors: kUnavailable, naming `where` and a parameter with values that are not finite.
Status CheckFiniteWeights(const LanguageModel& model, const std::string& where);
// Errors: kUnavailable, naming `where`, if the loss is not finite.
Status CheckFiniteLoss(double loss, const std::string& where);

}  // namespace penstock
