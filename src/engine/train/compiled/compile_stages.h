// Compiles the stages of a configuration without training, for printing and for files.
#pragma once

#include "config/train_config.h"
#include "graph/compile.h"

namespace penstock {

// Returns the graphs of the stage, on one plane (MeshOfPlanes), after the passes that `options`
// enables. Errors: kInvalidArgument for a stage that the configuration does not have, for slices
// and for data.lengths.
Result<StageGraphs> GraphsOfStage(const TrainConfig& config, int stage,
                                  const CompileOptions& options, int plane = 0);

struct CompiledStageFile {
  std::string path;
  StageProgram program;
};
// Compiles every stage of the configuration, of each plane, into `folder`, which is created if
// necessary.
Result<std::vector<CompiledStageFile>> CompileStages(const TrainConfig& config,
                                                     const std::string& folder);

}  // namespace penstock
