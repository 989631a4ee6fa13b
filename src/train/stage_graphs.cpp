#include "train/stage_graphs.h"

#include <ATen/ops/zeros.h>

#include <filesystem>

#include "model/model.h"
#include "train/compiled.h"
#include "train/setup.h"
#include "train/torch_stage.h"

namespace penstock {

Result<StageGraphs> GraphsOfStage(const TrainConfig& config, int stage,
                                  const CompileOptions& options) {
  CompileOptions with_config = options;
  with_config.fuse = config.fuse;
  PENSTOCK_TRY(with_config.hold, HeldBytes(config.recompute.hold));
  PENSTOCK_TRY(with_config.hold_for_weight, HeldBytes(config.recompute.hold_for_weight));
  TrainConfig chosen = config;
  PENSTOCK_TRY(const Schedule schedule, ChooseSchedule(chosen, Cores()));
  const int stages = schedule.stages();
  PENSTOCK_TRY(const std::vector<LayerRange> ranges,
               SplitLayers(config.model.layers, stages, config.pipeline.stage_layers));
  if (stage < 0 || stage >= stages) {
    return InvalidArgument("stage {}: the configuration makes stages 0 to {}", stage, stages - 1);
  }
  PENSTOCK_TRY(std::shared_ptr<StageModule> module,
               BuildStage(config.model, ranges[static_cast<std::size_t>(stage)]));
  const bool half = config.precision == "bf16";
  if (half) {
    PENSTOCK_TRY(module, CastStage(*module, config.model, ranges[static_cast<std::size_t>(stage)],
                                   at::kBFloat16));
  }
  TorchStageOptions stage_options;
  stage_options.first = stage == 0;
  stage_options.last = stage == stages - 1;
  stage_options.microbatches = chosen.pipeline.microbatches;
  const at::Tensor tokens = at::zeros({config.batch, config.model.sequence}, at::kLong);
  const at::Tensor input = stage_options.first
                               ? tokens
                               : at::zeros({config.batch, config.model.sequence, config.model.dim},
                                           half ? at::kBFloat16 : at::kFloat);
  PENSTOCK_TRY(JointGraph joint, CaptureStage(MakeStageSpec(module, input, tokens, stage_options)));
  return BuildStageGraphs(std::move(joint), with_config);
}

Result<std::vector<CompiledStageFile>> CompileStages(const TrainConfig& config,
                                                     const std::string& folder) {
  TrainConfig chosen = config;
  PENSTOCK_TRY(const Schedule schedule, ChooseSchedule(chosen, Cores()));
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return InvalidArgument("folder {}: {}", folder, error.message());
  CompileOptions options;
  options.exact = config.exact;
  std::vector<CompiledStageFile> files;
  for (int stage = 0; stage < schedule.stages(); ++stage) {
    PENSTOCK_TRY(const StageGraphs graphs, GraphsOfStage(chosen, stage, options));
    CompiledStageFile& file = files.emplace_back(
        CompiledStageFile{CompiledFile(folder, stage), MakeStageProgram(graphs)});
    PENSTOCK_TRY_STATUS(SaveStageProgram(file.path, file.program, KeyOfStage(chosen, stage)));
  }
  return files;
}

}  // namespace penstock
