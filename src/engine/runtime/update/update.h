// The decision on an update by the norm of all gradients.
#pragma once

#include <string>

#include "schedule/update_rule.h"

namespace penstock {

// The decision on one update, the same on every rank.
struct Verdict {
  double norm = 0;    // of all gradients, before scaling
  double scale = 1;   // the factor for all gradients
  bool apply = true;  // false: the weights do not change

  bool unchanged() const { return apply && scale == 1; }
};

// Throws std::runtime_error because the parameter's gradient is not finite.
[[noreturn]] void FailOnNonFinite(const UpdateRule& rule, const std::string& parameter);

// Throws std::runtime_error if the norm is not finite and the rule does not skip such updates.
Verdict Judge(const UpdateRule& rule, double squared_norm);

}  // namespace penstock
