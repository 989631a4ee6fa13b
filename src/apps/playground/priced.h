// The schedule that a question is about, with its costs.
#pragma once

#include <vector>

#include "base/result.h"
#include "playground/question.h"
#include "scenario/price/build.h"
#include "scenario/price/simulated.h"
#include "schedule/validate/validate.h"

namespace penstock::playground {

// What a question is about. If `faults` is not empty, the text is no valid schedule, and there is
// nothing else.
struct Subject {
  Schedule schedule = {};  // before passes
  PricedSchedule priced = {};
  std::vector<Fault> faults = {};
};

// Generates the schedule, or reads it from the question's text. Errors: kInvalidArgument about a
// field, and for a text that has no schedule, with the line and the column.
Result<Subject> SubjectOf(const Question& question);

// Returns the scenario of a schedule that exists, whose size its lanes determine.
Scenario WithoutShape(Scenario scenario);

// Prices other lanes of the same shape with the question's fields.
Result<PricedSchedule> PriceOther(const Question& question, Schedule schedule);

}  // namespace penstock::playground
