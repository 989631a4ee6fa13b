// From a stage's module to its programs. Private to train/.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "train/torch_stage.h"

namespace penstock {

// The module's parameters by name; tied weights once, under the first of their names.
std::vector<NamedTensor> ParametersOf(const StageModule& module);

// How many times the mean cut's tokens this one has: what its loss weighs among the rows'.
double ShareOfCut(const TorchStageOptions& options, int cut);

// The program of one cut for these examples, as MakeStageSpec takes them.
Result<StageProgram> CompileCut(const std::shared_ptr<StageModule>& module,
                                const StageExamples& examples, const TorchStageOptions& options,
                                int cut);

// Programs that CompileCut has made in this process.
int CompiledCuts();

// The programs of all cuts, in order; the options' own where they have them. Calls `on_cut` before
// each cut but the first. Refuses options and examples that do not fit.
Result<std::vector<StageProgram>> CompileCuts(const std::shared_ptr<StageModule>& module,
                                              const StageExamples& examples,
                                              const TorchStageOptions& options,
                                              const std::function<void(int cut)>& on_cut = {});

}  // namespace penstock
