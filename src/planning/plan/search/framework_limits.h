// Which divisions a framework can run, beyond the largest number of ranks of a kind.
#pragma once

#include "base/result.h"
#include "cost_model/precision.h"
#include "model_spec/model_shape.h"
#include "plan/search/division.h"

namespace penstock {

struct DividedModel {
  const JobDivision& division;
  int chunks = 1;
  const ModelShape& shape;
  Precision precision = Precision::kBf16;
};

// Errors: kInvalidArgument about the dimension that the framework does not run so.
Status CheckPenstock(const DividedModel& job);
Status CheckMegatron(const DividedModel& job);
Status CheckTorchtitan(const DividedModel& job);

}  // namespace penstock
