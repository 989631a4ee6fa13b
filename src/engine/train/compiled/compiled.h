// Stage programs on disk: `penstock compile` writes them, and a run with `compiled: DIR` loads them
// instead of capturing.
//
// Each stage has a safetensors file. It contains the graphs as text (graph/ir/parse.h), the slots
// of a microbatch, the constants as tensors, and the key of the program.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "config/train_config.h"
#include "graph/compile.h"

namespace penstock {

// What a stage's program depends on: keys of the configuration and versions, by name.
using ProgramKey = std::vector<std::pair<std::string, std::string>>;
// Requires: ChooseSchedule has filled in `config`.
ProgramKey KeyOfStage(const TrainConfig& config, int stage, int plane = 0);

// Returns the path of a stage's file, such as FOLDER/stage3.safetensors, or of its part on another
// plane (Planes) than the first, such as FOLDER/stage3.context1.tensor1.safetensors.
std::string CompiledFile(const std::string& folder, int stage, const ParallelConfig& parallel = {},
                         int plane = 0);

Status SaveStageProgram(const std::string& path, const StageProgram& program,
                        const ProgramKey& key);

// Reads a program and loads its fused kernels. Errors: kNotFound for a missing file.
// kInvalidArgument if the file is not a compiled stage or has another key; names the first
// difference. kUnavailable if fused kernels are missing and cannot be compiled.
Result<StageProgram> LoadStageProgram(const std::string& path, const ProgramKey& key);

}  // namespace penstock
