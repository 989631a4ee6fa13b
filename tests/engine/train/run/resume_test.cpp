// Interrupted runs continue with the same bits as runs without an interruption.
#include "train/run/resume.h"

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <random>

#include "base/index.h"
#include "checkpoint/merge.h"
#include "tests/engine/train/run/processes_run.h"
#include "tests/specs/checkpoint/small_checkpoint.h"
#include "tokens/files/token_writer.h"
#include "tokens/kinds/open_tokenizer.h"
#include "train/run/checkpoint_writer.h"

namespace penstock {
namespace {

constexpr std::int64_t kPlannedSteps = 9;

// Trains a tiny model with dropout on 2 ranks with 2 stages each, with a checkpoint every 3 steps.
class Resume : public ProcessesRun {
 protected:
  Resume() {
    base_ = With(base_, {"ranks=2", "microbatches=4", fmt::format("steps={}", kPlannedSteps),
                         "sample=5", "every=3"});
  }

  Result<TrainSummary> Run(const std::vector<std::string>& options,
                           const std::atomic<bool>* stop = nullptr) const {
    TrainOptions train = Options(stop);
    train.cores = TrainOptions().cores;  // several threads per rank
    return Train(Config(options), train);
  }

  void ExpectSameModelAndMetrics(const std::string& one, const std::string& other) {
    ExpectSameTensors(AllTensors(Folder(one) + "/model.safetensors"),
                      AllTensors(Folder(other) + "/model.safetensors"));
    const auto a = Metrics(one), b = Metrics(other);
    ASSERT_EQ(a.size(), b.size());
    for (std::size_t i = 0; i < a.size(); ++i) {
      EXPECT_EQ(a[i].step, static_cast<std::int64_t>(i));
      EXPECT_EQ(b[i].step, static_cast<std::int64_t>(i));
      EXPECT_EQ(a[i].loss, b[i].loss) << i;
      EXPECT_EQ(a[i].lr, b[i].lr) << i;
      EXPECT_EQ(a[i].grad_norm, b[i].grad_norm) << i;
      EXPECT_EQ(a[i].clipped, b[i].clipped) << i;
    }
  }

  // Compares losses and learning rates of all steps, and weights and moments after the last one.
  void ExpectSame(const std::string& one, const std::string& other) {
    const auto a = Metrics(one), b = Metrics(other);
    ASSERT_EQ(a.size(), Index(kPlannedSteps));
    ASSERT_EQ(b.size(), a.size());
    for (std::size_t i = 0; i < a.size(); ++i) {
      EXPECT_EQ(b[i].step, static_cast<std::int64_t>(i));
      EXPECT_EQ(a[i].loss, b[i].loss) << i;
      EXPECT_EQ(a[i].lr, b[i].lr) << i;
    }
    ExpectSameTensors(AllTensors(At(one, kPlannedSteps)), AllTensors(At(other, kPlannedSteps)));
  }
};

// One stage saves a parameter that two stages share. Each continues with its own copy.
TEST_F(Resume, SharedParametersContinueBitForBit) {
  base_ = With(base_, {"model.name=gpt2", "clip=0.5"});
  for (const std::string schedule : {"interleaved", "zbv"}) {
    SCOPED_TRACE(schedule);
    const std::string whole = "whole-" + schedule, later = "later-" + schedule;
    ASSERT_TRUE(Run({"name=" + whole, "schedule=" + schedule}));
    ASSERT_TRUE(Run({"name=" + later, "schedule=" + schedule, "resume=" + At(whole, 3)}));
    ExpectSame(whole, later);
    const Checkpoint third = OpenCheckpoint(At(whole, 3)).value();
    ASSERT_NE(third.reader.Find("embedding.weight"), nullptr);
    EXPECT_EQ(third.reader.Find("embedding.weight")->pieces.size(), 1U);
    // A model with another number of stages reads it too.
    ASSERT_TRUE(Run({"name=other-" + schedule, "stages=1", "ranks=1", "schedule=1f1b",
                     "resume=" + At(whole, 3)}));
  }
  const std::string error =
      ErrorOf({"model.name=llama", "name=llama", "resume=" + At("whole-zbv", 3)});
  EXPECT_TRUE(Contains(error, "is of another model: model.name is \"gpt2\" there, \"llama\" here"));
}

TEST_F(Resume, ContinuesBitForBitFromAnyCheckpoint) {
  ASSERT_TRUE(Run({"name=whole"}));
  ASSERT_TRUE(OpenCheckpoint(At("whole", 3))->has_optimizer());
  ASSERT_TRUE(Run({"name=three", "resume=" + At("whole", 3)}));
  ASSERT_TRUE(Run({"name=six", "resume=" + At("whole", 6)}));
  ExpectSame("whole", "three");
  ExpectSame("whole", "six");
}

// With dropout. Both schedules run the backwards in the order of the microbatches, so the sums are
// the same.
TEST_F(Resume, ContinuesWithOtherStages) {
  base_ = With(base_, {"schedule=1f1b"});
  ASSERT_TRUE(Run({"name=whole", "ranks=4"}));
  ASSERT_TRUE(Run({"name=two", "ranks=2", "stage_layers=3,1", "resume=" + At("whole", 3)}));
  ExpectSame("whole", "two");
}

// For some of these, the pipeline drains for a checkpoint and fills again after it.
TEST_F(Resume, ContinuesWithPostValidationReplicasAndStaleWeights) {
  const std::vector<std::vector<std::string>> kinds = {
      {"optimizer.clip=0.3", "post_validation=true"},
      {"optimizer.clip=0.3", "schedule=zb-h1", "stages=2"},
      {"schedule=dualpipe", "stages=2"},
      {"schedule=pipedream", "stages=2"},
      {"schedule=pipedream-2bw", "stages=2"}};
  for (std::size_t kind = 0; kind < kinds.size(); ++kind) {
    SCOPED_TRACE(kinds[kind].front());
    const std::string whole = fmt::format("whole{}", kind), three = fmt::format("three{}", kind);
    ValueOf(Run(With(kinds[kind], {"name=" + whole})));
    ValueOf(Run(With(kinds[kind], {"name=" + three, "resume=" + At(whole, 3)})));
    ExpectSame(whole, three);
  }
}

TEST_F(Resume, ContinuesWithAnotherSchedule) {
  ASSERT_TRUE(Run({"name=whole"}));
  const auto summary = Run({"name=other", "schedule=zb-h1", "resume=" + At("whole", 3)});
  ASSERT_TRUE(summary) << summary.error().line();
  const auto a = Metrics("whole"), b = Metrics("other");
  ASSERT_EQ(a.size(), b.size());
  EXPECT_EQ(a[2].loss, b[2].loss);
  EXPECT_NEAR(a.back().loss, b.back().loss, 0.05);
}

TEST_F(Resume, Bf16ContinuesFromItsMasterWeights) {
  ASSERT_TRUE(Run({"name=whole", "precision=bf16"}));
  ASSERT_TRUE(Run({"name=three", "precision=bf16", "resume=" + At("whole", 3)}));
  ExpectSame("whole", "three");
}

// Shards of 2 ranks are in one file, because one process runs both.
TEST_F(Resume, AutoUsesTheNewestCompleteCheckpoint) {
  ASSERT_TRUE(Run({"name=whole"}));
  ASSERT_TRUE(Run({"resume=auto", "every=1"}));  // no checkpoint yet
  EXPECT_NE(Log().find("starting from the first step"), std::string::npos);
  ExpectSame("whole", "run");
  // Killed before the manifest was written; truncated by a full disk; a flipped bit.
  std::filesystem::remove(At("run", 9) + "/manifest.json");
  const auto shard = [&](std::int64_t step) {
    return At("run", step) + "/shard-1-of-1.safetensors";
  };
  const std::string content = ReadFile(shard(8)).value();
  ASSERT_TRUE(WriteFileAtomically(shard(8), content.substr(0, content.size() / 2)));
  FlipBit(shard(7), ReadFile(shard(7))->size() - 100);
  FlipBit(At("run", 6) + "/manifest.json", 1000);
  ASSERT_TRUE(Run({"resume=auto"}));
  EXPECT_NE(Log().find(At("run", 9) + " was not completed"), std::string::npos) << Log();
  EXPECT_NE(Log().find(shard(8) + " has "), std::string::npos);
  EXPECT_NE(Log().find(shard(7) + " is damaged: '"), std::string::npos);
  EXPECT_TRUE(Contains(Log(), At("run", 6) + "/manifest.json is not a manifest: it is damaged"));
  EXPECT_NE(Log().find(At("run", 5) + ", after step 5"), std::string::npos);
  ExpectSame("whole", "run");
}

// A checkpoint of an earlier version of Penstock is one file.
TEST_F(Resume, ContinuesFromACheckpointInOneFile) {
  ASSERT_TRUE(Run({"name=whole"}));
  Checkpoint third = OpenCheckpoint(At("whole", 3)).value();
  Safetensors content = {.metadata = MetadataOf(third.reader.manifest()),
                         .tensors = AllTensors(At("whole", 3))};
  const std::string own = CheckpointFolder(folder_ / "runs/run");
  std::filesystem::create_directories(own);
  ASSERT_TRUE(WriteSafetensors(own + "/step-3.safetensors", content));
  std::filesystem::copy_file(folder_ / "runs/whole/metrics.jsonl",
                             folder_ / "runs/run/metrics.jsonl");
  ASSERT_TRUE(Run({"resume=auto"}));
  EXPECT_NE(Log().find("step-3.safetensors, after step 3"), std::string::npos);
  ExpectSame("whole", "run");
  // If its newest checkpoint is damaged, a run falls back to the file too.
  for (const std::int64_t step : {6, 9}) {
    std::filesystem::remove(At("run", step) + "/shard-1-of-1.safetensors");
  }
  ASSERT_TRUE(Run({"resume=auto"}));
  ExpectSame("whole", "run");
}

// The last checkpoint is written after the last step, with the time that the weights have too.
TEST_F(Resume, AMergedCheckpointIsTheModelOfTheRun) {
  ASSERT_TRUE(Run({"every=4"}));
  CheckpointReader last = CheckpointReader::Open(At("run", kPlannedSteps)).value();
  const std::string merged = folder_ / "merged.safetensors";
  ASSERT_TRUE(MergeWeights(last, merged));
  EXPECT_EQ(ReadFile(merged).value(), ReadFile(folder_ / "runs/run/model.safetensors").value());
}

TEST_F(Resume, AFinishedRunWritesOnlyItsFiles) {
  ASSERT_TRUE(Run({}));
  const std::string model = folder_ / "runs/run/model.safetensors";
  const std::string manifest = ReadFile(At("run", kPlannedSteps) + "/manifest.json").value();
  const std::map<std::string, at::Tensor> before = AllTensors(model);
  std::filesystem::remove(model);
  const auto again = ValueOf(Run({"resume=auto"}));
  EXPECT_EQ(again.steps, kPlannedSteps);
  ExpectSameTensors(before, AllTensors(model));
  EXPECT_EQ(ReadFile(At("run", kPlannedSteps) + "/manifest.json").value(), manifest);
  EXPECT_EQ(Metrics("run").size(), 9U);
}

TEST_F(Resume, KeepsTheNewest) {
  ASSERT_TRUE(Run({"every=1", "keep=2"}));
  const std::string own = CheckpointFolder(folder_ / "runs/run");
  const auto steps = [&] {
    std::vector<std::int64_t> all;
    const std::vector<StoredCheckpoint> stored = ListCheckpoints(own).value();
    for (const StoredCheckpoint& one : stored) all.push_back(one.step);
    return all;
  };
  ASSERT_EQ(steps().size(), 2U);
  EXPECT_EQ(steps().front(), kPlannedSteps);
  EXPECT_EQ(steps().back(), kPlannedSteps - 1);
}

// With keep=1, which removes the older checkpoints of a run.
TEST_F(Resume, FromAnOlderCheckpointMovesTheNewerOnes) {
  ASSERT_TRUE(Run({"name=whole"}));
  ASSERT_TRUE(Run({}));
  const std::string last = ReadFile(At("run", 9) + "/manifest.json").value();
  ASSERT_TRUE(Run({"resume=" + At("run", 3), "keep=1", "seed=2"}));
  const std::string aside = folder_ / "runs/run/superseded-1";
  EXPECT_NE(Log().find("after step 3 are kept in " + aside), std::string::npos) << Log();
  const std::string moved = CheckpointPath(CheckpointFolder(aside), 9);
  EXPECT_EQ(ReadFile(moved + "/manifest.json").value(), last);
  EXPECT_TRUE(std::filesystem::exists(CheckpointPath(CheckpointFolder(aside), 6)));
  EXPECT_NE(ReadFile(At("run", 9) + "/manifest.json").value(), last);
  // A run can resume from the moved checkpoints, with their metrics.
  ASSERT_TRUE(Run({"name=again", "resume=" + aside}));
  ExpectSame("whole", "again");
  // A run that starts over moves all of them.
  ASSERT_TRUE(Run({"every=0"}));
  EXPECT_TRUE(ListCheckpoints(CheckpointFolder(folder_ / "runs/run"))->empty());
  EXPECT_EQ(ListCheckpoints(CheckpointFolder(folder_ / "runs/run/superseded-2"))->size(), 1U);
}

TEST_F(Resume, RefusesCheckpointsThatCannotBeListed) {
  std::filesystem::create_directories(folder_ / "runs/run");
  const std::string own = CheckpointFolder(folder_ / "runs/run");
  for (const std::string target : {"checkpoints", "no/such/disk"}) {  // a loop and a dangling link
    std::filesystem::create_symlink(target, own);
    EXPECT_TRUE(Contains(ErrorOf({"resume=auto"}), "cannot list the checkpoints in " + own));
    std::filesystem::remove(own);
  }
}

// Stops each run up to three times, at any step.
TEST_F(Resume, AStoppedRunContinuesBitForBit) {
  const std::vector<std::vector<std::string>> kinds = {
      {"every=0"},
      {"every=7", "optimizer.clip=0.3"},
      {"every=7", "optimizer.clip=0.3", "post_validation=true"},
      {"every=0", "optimizer.clip=0.3", "post_validation=true"},
      {"every=0", "schedule=dualpipe", "stages=2"},
      {"every=3", "schedule=pipedream", "stages=2"},
      {"every=3", "schedule=pipedream-2bw", "stages=2"}};
  for (std::size_t kind = 0; kind < kinds.size(); ++kind) {
    const std::string whole = fmt::format("whole{}", kind);
    const std::string stopped = fmt::format("stopped{}", kind);
    std::vector<std::string> options = With(kinds[kind], {"steps=150", "keep=2"});
    ValueOf(Run(With(options, {"name=" + whole})));
    options = With(options, {"name=" + stopped, "resume=auto"});
    int stops = 0;
    for (bool done = false; !done;) {
      const auto summary = ValueOf(
          stops < 3 ? StopAfterAStep(stopped, [&](auto* stop) { return Run(options, stop); })
                    : Run(options));
      done = !summary.interrupted;
      if (done || summary.saved.empty() || summary.steps == 150) continue;
      ++stops;
      EXPECT_EQ(OpenCheckpoint(summary.saved)->info.step, summary.steps);
    }
    EXPECT_GT(stops, 0) << kinds[kind].front();
    ExpectSameModelAndMetrics(whole, stopped);
    if (HasFailure()) FAIL() << fmt::format("{}", fmt::join(kinds[kind], " "));
  }
}

TEST_F(Resume, RefusesUnusableCheckpoints) {
  ASSERT_TRUE(Run({}));
  const std::string three = At("run", 3);
  EXPECT_NE(ErrorOf({"resume=" + (folder_ / "none")}).find("none"), std::string::npos);
  EXPECT_NE(ErrorOf({"resume=" + folder_.path()}).find("no checkpoint"), std::string::npos);
  EXPECT_TRUE(Contains(ErrorOf({"resume=" + three, "dim=32"}), "model.dim is 16 there, 32 here"));
  EXPECT_NE(ErrorOf({"resume=" + three, "heads=4"}).find("model.heads"), std::string::npos);
  EXPECT_NE(ErrorOf({"resume=" + three, "steps=2"}).find("'steps' is only 2"), std::string::npos);
  EXPECT_TRUE(
      Contains(ErrorOf({"resume=" + (folder_ / "runs/run/model.safetensors")}), "optimizer state"));
  EXPECT_NE(ErrorOf({}).find("resume=auto"), std::string::npos);  // among the run's own
  const std::string text = folder_.Write("text.safetensors", "no such thing");
  EXPECT_NE(ErrorOf({"resume=" + text}).find("text.safetensors"), std::string::npos);
  for (const std::int64_t step : {3, 6, 9}) {
    ASSERT_TRUE(WriteFileAtomically(At("run", step) + "/manifest.json", "x"));
  }
  EXPECT_NE(ErrorOf({"resume=auto"}).find("none of 3"), std::string::npos);
}

TEST_F(Resume, LogsChangedKeys) {
  ASSERT_TRUE(Run({"name=whole"}));
  ASSERT_TRUE(Run({"resume=" + At("whole", 3), "seed=2", "watchdog=50"}));
  EXPECT_NE(Log().find("resume: seed was 1, is 2\n"), std::string::npos) << Log();
}

TEST_F(Resume, SkipsIncompleteLinesOfMetrics) {
  const auto line = [](std::int64_t step, double loss) {
    return MetricLine(StepMetric{.step = step, .loss = loss});
  };
  const std::string path =
      folder_.Write("metrics.jsonl", line(0, 1.5) + "{\"step\":1,\"loss\"\n" + "nonsense\n" +
                                         line(2, 1.25) + line(3, 1));
  const auto metrics = ReadMetrics(path, 3);
  ASSERT_EQ(metrics.size(), 2U);
  EXPECT_EQ(metrics[1].loss, 1.25);
  EXPECT_TRUE(ReadMetrics(folder_ / "none", 3).empty());
}

// All parts are of one step, for any order of the ranks and however far one is ahead.
TEST_F(Resume, ASnapshotHasThePartsOfOneStep) {
  TrainConfig config = ParseTrainConfig("", "none", {"every=1", "keep=0"}).value();
  config.folder = folder_ / "";
  config.name = "run";
  folder_.Write("run/made", "");
  const std::vector<at::Tensor> values = {at::zeros({3}), at::zeros({3}), at::zeros({3})};
  Collectives alone(nullptr);
  const Schedule schedule;
  const RunContext run{config, schedule, alone, LocalRanks(3), {}};
  constexpr int kLast = 200;
  int skipped = 0;
  {
    const std::vector<std::uint8_t> text(100);
    CheckpointWriter writer(run, std::make_shared<const Sampler>(text, 5, 1), [&](int rank) {
      return NamedState{{fmt::format("rank{}", rank), values[Index(rank)]}};
    });
    std::mt19937 random(3);
    std::vector<int> done(values.size());
    while (*std::min_element(done.begin(), done.end()) < kLast) {
      const std::size_t rank = random() % done.size();
      if (done[rank] == kLast) continue;
      values[rank].fill_(++done[rank]);
      writer.AfterStep(static_cast<int>(rank), done[rank], 0);
    }
    ASSERT_TRUE(writer.Finish(kLast, 0));
    skipped = writer.skipped();
  }
  const std::vector<StoredCheckpoint> stored =
      ListCheckpoints(CheckpointFolder(run.path())).value();
  ASSERT_FALSE(stored.empty());
  EXPECT_EQ(stored.front().step, kLast);
  EXPECT_GE(static_cast<int>(stored.size()) + skipped, kLast);
  for (const StoredCheckpoint& one : stored) {
    const std::map<std::string, at::Tensor> content = AllTensors(one.path);
    ASSERT_EQ(content.size(), values.size());
    for (const auto& [name, tensor] : content) {
      EXPECT_TRUE(tensor.eq(static_cast<double>(one.step)).all().item<bool>()) << name;
    }
  }
}

// Checkpoints count samples, so that a run with another batch size or other datasets continues with
// the next ones.
class ResumeOnTokens : public Resume {
 protected:
  // Writes documents of one token.
  std::string Tokens(const std::string& name, TokenId token) const {
    const std::string path = folder_ / name;
    TokenWriter writer = ValueOf(TokenWriter::Create(path, OpenTokenizer("bytes").value(), 10'000));
    for (int document = 0; document < 100; ++document) {
      EXPECT_TRUE(writer.Add(std::vector<TokenId>(40, token)));
    }
    EXPECT_TRUE(writer.Finish());
    return path;
  }
  // The samples of each dataset that a checkpoint has consumed.
  std::vector<std::uint64_t> Consumed(const std::string& run, std::int64_t step) const {
    std::vector<std::uint64_t> samples;
    const Checkpoint checkpoint = OpenCheckpoint(At(run, step)).value();
    for (const ConsumedData& each : checkpoint.info.data) samples.push_back(each.samples);
    return samples;
  }
};

TEST_F(ResumeOnTokens, AnotherBatchSizeContinuesWithTheNextSamples) {
  const std::string one = Tokens("one", 1), two = Tokens("two", 2);
  ASSERT_TRUE(Run({"name=a", "steps=3", "data.path=" + one}));
  EXPECT_EQ(Consumed("a", 3), std::vector<std::uint64_t>{12});
  const std::string from = "resume=" + At("a", 3);
  ASSERT_TRUE(Run({"name=b", "steps=6", "data.path=" + one, "microbatches=2", "batch=3", from}));
  EXPECT_TRUE(Contains(Log(), "resume: the data continues after 12 samples"));
  EXPECT_EQ(Consumed("b", 6), std::vector<std::uint64_t>{12 + 18});
  const std::string blend = fmt::format("data.blend=1 {}, 1 {}", two, one);
  ASSERT_TRUE(Run({"name=c", "steps=9", blend, "resume=" + At("b", 6)}));
  const std::vector<std::uint64_t> both = Consumed("c", 9);
  ASSERT_EQ(both.size(), 2U);
  EXPECT_EQ(both[0] + both[1], 12U + 18U + 12U);
  EXPECT_GT(both[1], 30U) << "the first dataset continues, though it is the second one now";
}

// A checkpoint of an earlier version does not count samples, but has its configuration.
TEST_F(ResumeOnTokens, ACheckpointOfAnEarlierVersionIsCounted) {
  const std::string tokens = Tokens("one", 1);
  ASSERT_TRUE(Run({"name=a", "steps=3", "data.path=" + tokens}));
  const std::string file = At("a", 3) + "/" + kManifestName;
  Manifest manifest = ValueOf(ParseManifest(ReadFile(file).value()));
  manifest.data.clear();
  ASSERT_TRUE(WriteFileAtomically(file, FormatManifest(manifest)));
  ASSERT_TRUE(
      Run({"name=b", "steps=6", "data.path=" + tokens, "microbatches=2", "resume=" + At("a", 3)}));
  EXPECT_EQ(Consumed("b", 6), std::vector<std::uint64_t>{12 + 6});
}

TEST_F(Resume, AFailedWriteFailsTheRun) {
  folder_.Write("runs/run/checkpoints", "a file in place of the folder");
  EXPECT_NE(ErrorOf({}).find("runs/run/checkpoints"), std::string::npos);
}

}  // namespace
}  // namespace penstock
