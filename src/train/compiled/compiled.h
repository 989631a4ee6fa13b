// Stage programs on disk: `penstock compile` writes them, a run with `compiled: DIR` starts from
// them and captures nothing.
//
// One safetensors file a stage: the graphs as text (graph/ir/parse.h), the places of what a
// microbatch holds, the constants as tensors, and what the program was made for.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "graph/compile.h"
#include "train/config.h"

namespace penstock {

// What a stage's program depends on, by name: the configuration's keys and the versions. `config`
// is as ChooseSchedule left it.
using ProgramKey = std::vector<std::pair<std::string, std::string>>;
ProgramKey KeyOfStage(const TrainConfig& config, int stage);

// DIR/stage3.safetensors.
std::string CompiledFile(const std::string& folder, int stage);

Status SaveStageProgram(const std::string& path, const StageProgram& program,
                        const ProgramKey& key);

// Errors: kNotFound for a missing file; kInvalidArgument where it is none of ours, or was made for
// something else: names the first key that differs; kUnavailable where its fused kernels are not
// there and cannot be made.
Result<StageProgram> LoadStageProgram(const std::string& path, const ProgramKey& key);

}  // namespace penstock
