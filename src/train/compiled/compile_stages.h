// The graphs of one stage of a configuration, for printing.
#pragma once

#include "graph/compile.h"
#include "train/config.h"

namespace penstock {

// What the passes that `options` leaves in make of the stage. Refuses a stage that the
// configuration does not make.
Result<StageGraphs> GraphsOfStage(const TrainConfig& config, int stage,
                                  const CompileOptions& options);

struct CompiledStageFile {
  std::string path;
  StageProgram program;
};
// Compiles every stage of the configuration into `folder`, which is made where it is not there.
Result<std::vector<CompiledStageFile>> CompileStages(const TrainConfig& config,
                                                     const std::string& folder);

}  // namespace penstock
