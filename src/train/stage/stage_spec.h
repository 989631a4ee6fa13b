// Compiles a stage's module to its programs. Private to train/.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "train/stage/torch_stage.h"

namespace penstock {

// Returns the module's parameters by name; tied weights once, under the first of their names.
std::vector<NamedTensor> ParametersOf(const StageModule& module);

// Returns the tokens of this slice relative to the mean slice: the weight of its loss.
double ShareOfSlice(const TorchStageOptions& options, int slice);

// Compiles one slice for these examples, as MakeStageSpec takes them.
Result<StageProgram> CompileSlice(const std::shared_ptr<StageModule>& module,
                                  const StageExamples& examples, const TorchStageOptions& options,
                                  int slice);

// Returns the number of programs that CompileSlice has compiled in this process.
int CompiledSlices();

// Returns the programs of all slices in order, or those in the options. Calls `on_slice` before
// each slice but the first. Rejects options and examples that do not fit together.
Result<std::vector<StageProgram>> CompileSlices(
    const std::shared_ptr<StageModule>& module, const StageExamples& examples,
    const TorchStageOptions& options, const std::function<void(int slice)>& on_slice = {});

}  // namespace penstock
