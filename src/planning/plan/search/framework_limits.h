// Which divisions a framework can run, beyond the largest number of ranks of a kind.
#pragma once

#include <span>

#include "base/result.h"
#include "cost_model/precision.h"
#include "model_spec/model_config.h"
#include "model_spec/model_shape.h"
#include "plan/search/division.h"
#include "schedule/schedule.h"

namespace penstock {

struct DividedModel {
  const JobDivision& division;
  int chunks = 1;
  std::string_view algorithm = {};  // of the schedule; empty: not chosen
  const ModelShape& shape;
  Precision precision = Precision::kBf16;
  // The engine's model of this shape, or why it has none (EngineModelOf).
  const Result<ModelConfig>& engine_model;
  bool sequence_parallel = true;
  int sites = 1;
  // Of one replica, with the layers of its stages (empty: as even as possible). Null: not chosen.
  const Schedule* schedule = nullptr;
  std::span<const int> layers = {};
};

// Errors: kInvalidArgument about the dimension that the framework does not run so.
//
// What the engine runs is what `penstock train` accepts: the same checks of the same configuration.
Status CheckPenstock(const DividedModel& job);
Status CheckMegatron(const DividedModel& job);
Status CheckTorchtitan(const DividedModel& job);

}  // namespace penstock
