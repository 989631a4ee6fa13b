// Times as users give them: in the unit of the costs ("0.1"), or in seconds with a unit ("5ms").
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace penstock {

struct TimeValue {
  double value = 0;       // in seconds if it has a unit, else in the unit of the costs
  bool has_unit = false;  // whether the user wrote one
  std::string text = {};  // as the user wrote it
};

// What a number without a unit means next to the costs.
enum class PlainTime {
  kUnitOfCosts,  // which is unknown: a time with a unit cannot be compared with it
  kSeconds,      // the costs say that they are in seconds
  kAmbiguous,    // a model determines the costs, so no other time shows what is meant
};

// Errors begin with the quoted text and have no parameter.
Result<TimeValue> ParseTimeValue(const std::string& text);

// Refuses a time that may be misread: one without a unit next to the costs of a model, except 0, or
// one with a unit next to costs without.
Status CheckUnit(std::string_view parameter, const TimeValue& time, PlainTime plain);

}  // namespace penstock
