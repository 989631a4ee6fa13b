// The graphs of one stage of a configuration, for printing.
#pragma once

#include "graph/compile.h"
#include "train/config.h"

namespace penstock {

// What the passes that `options` leaves in make of the stage. Refuses a stage that the
// configuration does not make.
Result<StageGraphs> GraphsOfStage(const TrainConfig& config, int stage,
                                  const CompileOptions& options);

}  // namespace penstock
