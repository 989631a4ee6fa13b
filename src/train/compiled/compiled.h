// Stage programs on disk: `penstock compile` writes them, and a run with `compiled: DIR` loads them
// instead of capturing.
//
// One safetensors file per stage: the graphs as text (graph/ir/parse.h), the slots of a microbatch,
// the constants as tensors, and what the program was compiled for.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "graph/compile.h"
#include "train/config.h"

namespace penstock {

// Returns what a stage's program depends on, by name: the keys of the configuration and the
// versions. Requires: ChooseSchedule has filled in `config`.
using ProgramKey = std::vector<std::pair<std::string, std::string>>;
ProgramKey KeyOfStage(const TrainConfig& config, int stage);

// DIR/stage3.safetensors.
std::string CompiledFile(const std::string& folder, int stage);

Status SaveStageProgram(const std::string& path, const StageProgram& program,
                        const ProgramKey& key);

// Errors: kNotFound for a missing file; kInvalidArgument if it is not a compiled stage, or was
// compiled for another configuration (names the first key that differs); kUnavailable if its fused
// kernels are missing and cannot be compiled.
Result<StageProgram> LoadStageProgram(const std::string& path, const ProgramKey& key);

}  // namespace penstock
