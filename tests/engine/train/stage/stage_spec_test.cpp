// Identical stages are captured once, and slices share their kernels.
#include "train/stage/stage_spec.h"

#include <gtest/gtest.h>

#include <set>

#include "config/run_schedule.h"
#include "graph/kernel/fused_op.h"
#include "graph/kernel/kernel.h"
#include "model/model.h"
#include "tests/engine/train/tiny_run.h"
#include "tests/results.h"
#include "train/run/pipeline.h"

namespace penstock {
namespace {

// Returns the number of captures for a pipeline of these stages.
int Captures(const std::vector<std::int64_t>& layers, int slices) {
  TrainConfig config = TinyConfig();
  config.pipeline.schedule = "seq1f1b";
  config.pipeline.ranks = static_cast<int>(layers.size());
  config.pipeline.stage_layers = layers;
  config.pipeline.slices = slices;
  config.model.sequence = 6;
  config.model.layers = 0;
  for (const std::int64_t count : layers) config.model.layers += count;
  const Schedule schedule = ChooseSchedule(config, 1).value();
  const std::vector<std::uint8_t> text = Text();
  const Sampler sampler(text, config.model.sequence, 1);
  const int before = CompiledSlices();
  EXPECT_TRUE(BuildPipeline(config, schedule, MakeBatchSource(sampler, config)));
  return CompiledSlices() - before;
}

TEST(StageSpec, CapturesIdenticalStagesOnce) {
  EXPECT_EQ(Captures({1, 1}, 1), 2);  // with the embedding, with the head
  EXPECT_EQ(Captures({1, 1, 1, 1, 1, 1, 1}, 1), 3);
  EXPECT_EQ(Captures({1, 2, 1, 2, 1, 1}, 1), 4);
  EXPECT_EQ(Captures({1, 1, 1, 1, 1, 1}, 3), 9);
}

// Returns the source code of a program's kernels.
std::set<std::string> KernelsOf(const StageProgram& program) {
  std::set<std::string> kernels;
  for (const StagePiece* piece :
       {&program.forward, &program.backward_input, &program.backward_weight}) {
    for (const Node& node : piece->graph.nodes) {
      const std::string* text = FusedKernelText(node);
      if (text != nullptr) kernels.insert(SourceOf(KernelOf(*text).value(), "kernel"));
    }
  }
  return kernels;
}

// Later slices differ in their position in the sequence and, with several samples, in the strides
// of the keys and values so far. The code of their kernels is the same.
TEST(StageSpec, SlicesShareTheirKernels) {
  ModelConfig model = TinyConfig().model;
  model.sequence = 24;
  model.layers = 3;
  const auto stage = BuildStage(model, {1, 2, false, false}).value();
  TorchStageOptions options;
  options.lengths.of_slices.assign(6, 4);
  options.schedule.microbatches = 6;
  options.compile.exact = false;
  options.compile.fuse = true;
  for (const std::int64_t batch : {1, 3}) {
    StageExamples examples{{at::zeros({batch, 4, model.dim}).requires_grad_(true)}};
    const auto programs = ValueOf(CompileSlices(stage, examples, options));
    const std::set<std::string> second = KernelsOf(programs[1]);
    EXPECT_FALSE(second.empty());
    // Not the last slice, which has no gradients from later slices to add.
    for (std::size_t slice = 2; slice + 1 < programs.size(); ++slice) {
      EXPECT_EQ(KernelsOf(programs[slice]), second) << "slice " << slice << ", batch " << batch;
    }
  }
}

}  // namespace
}  // namespace penstock
