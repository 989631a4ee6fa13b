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

// Returns the weight of the loss of a program: the tokens of its slice or length relative to the
// mean over all slices of a sequence, or over all microbatches.
double ShareOfProgram(const TorchStageOptions& options, int program);

// Compiles one slice or length for these examples. Requires: as MakeStageSpec.
Result<StageProgram> CompileSlice(const std::shared_ptr<StageModule>& module,
                                  const StageExamples& examples, const TorchStageOptions& options,
                                  int program);

// Returns zeros with the shapes of these outputs. They are valid values for any stage: the next one
// runs on them once, for its capture.
std::vector<at::Tensor> ExamplesOf(std::span<const StagePort> ports,
                                   c10::Device device = c10::kCPU);

// Returns the number of programs that CompileSlice has compiled in this process. For tests.
int CompiledSlices();

// Returns the programs in the options if there are any, else compiles all slices or lengths in
// order. Calls `on_slice` before each one but the first. Errors: kInvalidArgument if options and
// examples do not fit together.
Result<std::vector<StageProgram>> CompileSlices(
    const std::shared_ptr<StageModule>& module, const StageExamples& examples,
    const TorchStageOptions& options, const std::function<void(int slice)>& on_slice = {});

}  // namespace penstock
