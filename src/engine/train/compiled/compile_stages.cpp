#include "train/compiled/compile_stages.h"

#include <ATen/ops/zeros.h>

#include <utility>

#include "base/folders.h"
#include "base/system/cores.h"
#include "config/replicas.h"
#include "config/run_schedule.h"
#include "config/sequence_lengths.h"
#include "config/stage_ranges.h"
#include "graph/capture/shapes_only.h"
#include "model/model.h"
#include "train/compiled/compiled.h"
#include "train/compiled/example_inputs.h"
#include "train/model_fits.h"
#include "train/stage/stage_options.h"
#include "train/stage/torch_stage.h"

namespace penstock {
namespace {

Result<StageGraphs> CapturedGraphs(const TrainConfig& config, int stage,
                                   const CompileOptions& options, int plane) {
  CompileOptions with_config = options;
  with_config.fuse = config.fuse;
  PENSTOCK_TRY_STATUS(SetRecompute(config, with_config));
  TrainConfig chosen = config;
  PENSTOCK_TRY(const Schedule schedule, ChooseSchedule(chosen, Cores()));
  const int stages = schedule.placement.chain_length();
  if (!config.data.lengths.empty()) {
    return InvalidParameter("data.lengths",
                            ": each length has its own program, which 'train' compiles; remove it");
  }
  if (schedule.slices > 1) {
    return InvalidArgument(
        "a schedule with slices cannot be printed or compiled to files: each of {} slices has its "
        "own program, which 'train' compiles",
        schedule.slices);
  }
  PENSTOCK_TRY(const std::vector<LayerRange> ranges, StageRanges(chosen, stages));
  if (stage < 0 || stage >= stages) {
    return InvalidArgument("stage {}: the configuration has stages 0 to {}", stage, stages - 1);
  }
  const std::size_t index = stage;
  const LayerRange range =
      WithParts(ranges[index], chosen, schedule, schedule.placement.rank_of(stage), plane);
  const bool only_shapes = ShapesOnly::Current() != nullptr;
  PENSTOCK_TRY_STATUS(CheckModelFits(chosen.model, {&range, 1},
                                     std::int64_t{config.batch} * config.model.sequence,
                                     only_shapes ? "none" : config.max_memory));
  PENSTOCK_TRY(const std::shared_ptr<StageModule> module, WorkingStage(chosen, range));
  StageExamples examples;
  const std::int64_t tokens = TokensOfRank(config, config.model.sequence);
  PENSTOCK_TRY(examples.inputs, ExampleInputs(chosen, std::span(ranges).first(index), tokens));
  examples.targets = {at::zeros({config.batch, tokens}, at::kLong)};
  PENSTOCK_TRY(const TorchStageOptions stage_options,
               OptionsOfStage(chosen, schedule, SharedParameters(config.model, ranges), stage));
  PENSTOCK_TRY(JointGraph joint, CaptureStage(MakeStageSpec(module, examples, stage_options)));
  return BuildStageGraphs(std::move(joint), with_config);
}

}  // namespace

Result<StageGraphs> GraphsOfStage(const TrainConfig& config, int stage,
                                  const CompileOptions& options, int plane) {
  try {
    return CapturedGraphs(config, stage, options, plane);
  } catch (const c10::Error& error) {
    if (std::string_view(error.what()).find("overflow") == std::string_view::npos) throw;
    return InvalidArgument(
        "a tensor of stage {} has more than 8 EiB: use a smaller model.dim, model.hidden, "
        "model.vocabulary, model.sequence or batch",
        stage);
  }
}

Result<std::vector<CompiledStageFile>> CompileStages(const TrainConfig& config,
                                                     const std::string& folder) {
  TrainConfig chosen = config;
  PENSTOCK_TRY(const Schedule schedule, ChooseSchedule(chosen, Cores()));
  if (schedule.weights == WeightPolicy::kStashed) {
    return InvalidArgument(
        "schedule '{}' updates after every microbatch, but compiled stages serve one update per "
        "step: use another schedule",
        schedule.algorithm);
  }
  CompileOptions options;
  options.exact = config.exact;
  options.overlapped = true;
  std::vector<CompiledStageFile> files;
  const int planes = Planes(config.parallel).ranks();
  for (int i = 0; i < schedule.placement.chain_length() * planes; ++i) {
    const int stage = i / planes, plane = i % planes;
    PENSTOCK_TRY(const StageGraphs graphs, GraphsOfStage(chosen, stage, options, plane));
    // Only now, so that a refused configuration leaves no folder.
    PENSTOCK_TRY_STATUS(CreateFolders(folder));
    CompiledStageFile& file = files.emplace_back(CompiledStageFile{
        CompiledFile(folder, stage, chosen.parallel, plane), MakeStageProgram(graphs)});
    if (!file.program.exchanges) file.program.overlapped = {};  // not used by a run
    PENSTOCK_TRY_STATUS(
        SaveStageProgram(file.path, file.program, KeyOfStage(chosen, stage, plane)));
  }
  return files;
}

}  // namespace penstock
