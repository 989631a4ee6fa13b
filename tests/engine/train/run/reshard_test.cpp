// A run resumes from a checkpoint of another layout: stages, ranks, chunks, schedule and processes.
#include <gtest/gtest.h>

#include "config/run_schedule.h"
#include "tests/engine/train/run/processes_run.h"
#include "tests/results.h"
#include "tests/specs/checkpoint/small_checkpoint.h"
#include "train/run/pipeline.h"
#include "train/run/resume.h"

namespace penstock {
namespace {

class Reshard : public ProcessesRun {
 protected:
  void RunAll(const std::vector<std::string>& options, int processes) {
    for (const TrainSummary& summary : RunWell(options, processes)) EXPECT_EQ(summary.steps, 5);
  }

  std::vector<double> Losses(const std::string& run) const {
    std::vector<double> losses;
    for (const StepMetric& metric : Metrics(run)) losses.push_back(metric.loss);
    return losses;
  }

  // Returns the file that contains the first element of a tensor.
  static std::string FileOf(const std::string& checkpoint, const std::string& tensor) {
    const CheckpointReader reader = CheckpointReader::Open(checkpoint).value();
    return checkpoint + "/" + reader.Find(tensor)->pieces.front().file;
  }

  // Changes the tensor in its file, but not its checksum.
  static void Damage(const std::string& checkpoint, const std::string& tensor) {
    const std::string file = FileOf(checkpoint, tensor);
    const Safetensors content = ReadSafetensors(file).value();
    const std::string whole = ReadFile(file).value();
    const std::size_t found = whole.find(RawBytes(content.tensors.at(tensor)));
    ASSERT_NE(found, std::string::npos);
    FlipBit(file, found + 1);
  }
};

struct Layout {
  int processes;
  std::vector<std::string> options;
};

// The run that resumes from the last step only restores and writes its state.
TEST_F(Reshard, EveryLayoutReadsAndWritesTheSameState) {
  const std::vector<std::string> model = {"layers=8", "clip=0.5"};
  const std::vector<Layout> layouts = {
      {1, {"schedule=1f1b", "ranks=4"}},
      {2, {"schedule=1f1b", "ranks=2", "stages=2"}},
      {1, {"schedule=1f1b", "ranks=1", "stages=1"}},
      {2, {"schedule=interleaved", "ranks=2", "chunks=2"}},
      {3, {"schedule=zbv", "ranks=4", "stages=8"}},
      {2, {"schedule=1f1b", "ranks=2", "stages=2", "stage_layers=7,1"}},
      {4, {"schedule=dualpipe", "ranks=4"}},
      {2, {"schedule=zb-h1", "ranks=4", "post_validation=true"}},
      {2, {"schedule=1f1b", "ranks=2", "stages=2", "parallel.data=2", "parallel.zero=1"}},
      {1, {"schedule=1f1b", "ranks=4", "parallel.data=4", "parallel.zero=1"}},
      {2, {"schedule=zb-h1", "ranks=2", "stages=2", "parallel.data=2", "parallel.zero=3"}},
      {2, {"schedule=looped-bfs", "ranks=2", "chunks=2", "parallel.data=2", "parallel.zero=2"}},
      {2, {"schedule=zbv", "ranks=2", "stages=4", "parallel.data=2"}},
      {2, {"schedule=1f1b", "ranks=3", "stages=3", "shard_vocabulary=true"}},
      {1, {"schedule=interleaved", "ranks=4", "chunks=2", "shard_vocabulary=true"}},
      {2, {"schedule=1f1b", "ranks=2", "stages=2"}},
  };
  RunAll(With(model, layouts[0].options), layouts[0].processes);
  const std::map<std::string, at::Tensor> state = AllTensors(At("run", 5));
  std::string before = At("run", 5);
  for (std::size_t i = 1; i < layouts.size(); ++i) {
    SCOPED_TRACE(fmt::format("{}", fmt::join(layouts[i].options, " ")));
    const std::string name = fmt::format("run{}", i);
    RunAll(With(With(model, layouts[i].options), {"name=" + name, "resume=" + before}),
           layouts[i].processes);
    if (HasFailure()) return;
    before = At(name, 5);
    ExpectSameTensors(AllTensors(before), state);
    ExpectSameTensors(AllTensors(Folder(name) + "/model.safetensors"),
                      AllTensors(Folder("run") + "/model.safetensors"));
  }
}

// With dropout. These schedules accumulate gradients in the same order.
TEST_F(Reshard, ContinuesBitForBitOnOtherLayouts) {
  const std::vector<std::string> model = {"layers=8"};
  RunAll(With(model, {"schedule=1f1b", "ranks=4"}), 2);
  const std::vector<Layout> layouts = {{3, {"schedule=1f1b", "ranks=4"}},
                                       {1, {"schedule=1f1b", "ranks=2", "stages=2"}},
                                       {2, {"schedule=1f1b", "ranks=2", "stages=2"}},
                                       {2, {"schedule=interleaved", "ranks=2", "chunks=2"}}};
  for (std::size_t i = 0; i < layouts.size(); ++i) {
    SCOPED_TRACE(i);
    const std::string name = fmt::format("run{}", i);
    RunAll(With(With(model, layouts[i].options), {"name=" + name, "resume=" + At("run", 2)}),
           layouts[i].processes);
    if (HasFailure()) return;
    ExpectSameTensors(AllTensors(At(name, 5)), AllTensors(At("run", 5)));
    EXPECT_EQ(Losses(name), Losses("run"));
  }
}

TEST_F(Reshard, AProcessReadsOnlyTheStateOfItsStages) {
  RunAll({"schedule=1f1b"}, 1);
  const std::string checkpoint = At("run", 5);
  Damage(checkpoint, "optimizer.first_moment.embedding.weight");  // of stage 0
  TrainConfig config = Config({"schedule=1f1b"});
  const Schedule schedule = ChooseSchedule(config, 1).value();
  const std::vector<std::uint8_t> text(1000);
  const Sampler sampler(text, config.model.sequence, 1);
  for (int process = 0; process < kProcesses; ++process) {
    const LocalRanks ranks = LocalRanks::Split(4, kProcesses, process).value();
    Collectives alone(nullptr);
    const RunContext run{config, schedule, alone, ranks, {.log = nullptr}};
    const BatchSource source = MakeBatchSource(std::make_shared<const Sampler>(sampler), run);
    Pipeline pipeline = BuildPipeline(run, source).value();
    Checkpoint from = OpenCheckpoint(checkpoint).value();
    const auto restored = RestorePipeline(from, pipeline);
    if (process == 0) {
      EXPECT_TRUE(
          Refused(restored, "is damaged: 'optimizer.first_moment.embedding.weight' has a block"));
      continue;
    }
    ASSERT_TRUE(restored) << restored.error().line();
    std::uint64_t needed = 0, all = 0;
    for (const int rank : ranks.here()) {
      for (const StatePiece& piece : RankState(pipeline, schedule, rank)) {
        needed += piece.values.nbytes();
      }
    }
    EXPECT_EQ(from.reader.bytes_read(), needed);
    for (const auto& [name, tensor] : from.reader.manifest().tensors) {
      all += tensor.elements() * sizeof(float);
    }
    EXPECT_LT(needed, all);
  }
}

// Process 1 finds the damage, because only it needs the tensor.
TEST_F(Reshard, IfOneProcessFindsDamageAllUseTheCheckpointBefore) {
  const std::vector<std::string> model = {"schedule=1f1b"};
  RunAll(model, kProcesses);
  const Outcome whole = Collect("run");
  const std::string damaged = FileOf(At("run", 5), "layers.1.wq.weight");
  EXPECT_TRUE(damaged.ends_with("shard-2-of-2.safetensors")) << damaged;
  Damage(At("run", 5), "layers.1.wq.weight");
  RunAll(With(model, {"resume=auto"}), kProcesses);
  EXPECT_NE(Log().find(damaged + " is damaged: 'layers.1"), std::string::npos) << Log();
  EXPECT_NE(Log().find("trying the previous one, " + At("run", 4)), std::string::npos);
  ExpectSame(Collect("run"), whole);
  // A run whose checkpoints are all damaged does not start.
  for (const std::int64_t step : {2, 4, 5}) {
    Damage(At("run", step), "layers.1.wq.weight");
  }
  for (const auto& summary : RunOnProcesses({"schedule=1f1b", "resume=auto"})) {
    ASSERT_FALSE(summary);
    EXPECT_EQ(summary.error().line().find("none of 3 checkpoints is complete: "), 0U)
        << summary.error().line();
  }
}

}  // namespace
}  // namespace penstock
