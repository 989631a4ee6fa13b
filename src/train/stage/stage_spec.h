// From a stage's module to its programs. Private to train/.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "train/stage/torch_stage.h"

namespace penstock {

// The module's parameters by name; tied weights once, under the first of their names.
std::vector<NamedTensor> ParametersOf(const StageModule& module);

// How many times the mean slice's tokens this one has: what its loss weighs among the rows'.
double ShareOfSlice(const TorchStageOptions& options, int slice);

// The program of one slice for these examples, as MakeStageSpec takes them.
Result<StageProgram> CompileSlice(const std::shared_ptr<StageModule>& module,
                                  const StageExamples& examples, const TorchStageOptions& options,
                                  int slice);

// Programs that CompileSlice has made in this process.
int CompiledSlices();

// The programs of all slices, in order; the options' own where they have them. Calls `on_slice`
// before each slice but the first. Refuses options and examples that do not fit.
Result<std::vector<StageProgram>> CompileSlices(
    const std::shared_ptr<StageModule>& module, const StageExamples& examples,
    const TorchStageOptions& options, const std::function<void(int slice)>& on_slice = {});

}  // namespace penstock
