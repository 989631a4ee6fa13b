// Compiles a stage's module to its programs. Private to train/.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "train/shards/shards.h"
#include "train/stage/torch_stage.h"

namespace penstock {

// Returns the module's parameters by name. Tied weights appear once, under the first of their
// names.
std::vector<NamedTensor> ParametersOf(const StageModule& module);

// Returns how the stage's parameters are divided among its replicas.
Shards ShardsOf(std::span<const NamedTensor> parameters, const TorchStageOptions& options);

// Returns the weight of the slice's loss: its tokens relative to the mean over all slices.
double ShareOfSlice(const TorchStageOptions& options, int slice);

// Compiles one slice for these examples. Requires: as MakeStageSpec.
Result<StageProgram> CompileSlice(const std::shared_ptr<StageModule>& module,
                                  const StageExamples& examples, const TorchStageOptions& options,
                                  int slice);

// Returns examples with the shapes of these inputs of a stage, the last of which are targets if it
// is a last stage. Requires: the ports have the same dtypes.
StageExamples ExamplesLike(std::span<const at::Tensor> inputs, std::span<const StagePort> ports,
                           bool last);

// Returns the number of programs that CompileSlice has compiled in this process. For tests.
int CompiledSlices();

// Returns the programs in the options if there are any, else compiles all slices in order. Calls
// `on_slice` before each slice but the first. Errors: kInvalidArgument if options and examples do
// not fit together.
Result<std::vector<StageProgram>> CompileSlices(
    const std::shared_ptr<StageModule>& module, const StageExamples& examples,
    const TorchStageOptions& options, const std::function<void(int slice)>& on_slice = {});

}  // namespace penstock
