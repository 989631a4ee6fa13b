// Muon, groups and averages compute the same bits for every layout, and resume on any other.
#include <gtest/gtest.h>

#include "tests/engine/train/run/processes_run.h"
#include "tests/results.h"

namespace penstock {
namespace {

const std::vector<std::string> kMuon = {
    "layers=4", "optimizer.name=muon",
    "lr=0.02",  "optimizer.ema=0.9",
    "keep=0",   "optimizer.groups=[{match: 'norm', lr_scale: 0.5}, {match: 'wq', name: adamw}]"};

class Optimizers : public ProcessesRun {
 protected:
  static std::vector<std::string> Muon(const std::vector<std::string>& more) {
    return With(kMuon, more);
  }
};

TEST_F(Optimizers, ShardsHaveTheBitsOfTheWhole) {
  for (const char* dtype : {"precision=f32", "precision=bf16", "gradient_dtype=bf16"}) {
    const std::vector<std::string> options = Muon({"ranks=2", "data=2", dtype});
    ASSERT_TRUE(RunAlone(options));
    const auto expected = AllTensors(At("run", 5));
    ASSERT_TRUE(expected.contains("optimizer.momentum.layers.1.wk.weight"));
    ASSERT_TRUE(expected.contains("optimizer.first_moment.layers.1.wq.weight"));
    ASSERT_TRUE(expected.contains("optimizer.ema.norm.weight"));
    EXPECT_FALSE(expected.contains("optimizer.momentum.embedding.weight"));
    EXPECT_FALSE(expected.contains("optimizer.second_moment.layers.1.wk.weight"));
    std::filesystem::remove_all(Folder("run"));
    for (const char* zero : {"zero=1", "zero=2", "zero=3"}) {
      for (const int processes : {1, 2}) {
        RunWell(With(options, {zero}), processes);
        ExpectSameTensors(AllTensors(At("run", 5)), expected);
        std::filesystem::remove_all(Folder("run"));
      }
    }
  }
}

TEST_F(Optimizers, PostValidationRollsBackAllState) {
  const std::vector<std::string> options = Muon({"clip=0.3"});
  ASSERT_TRUE(RunAlone(options));
  const auto expected = AllTensors(At("run", 5));
  std::filesystem::remove_all(Folder("run"));
  ASSERT_TRUE(RunAlone(With(options, {"post_validation=true"})));
  ExpectSameTensors(AllTensors(At("run", 5)), expected);
}

TEST_F(Optimizers, ResumeOnAnotherLayout) {
  ASSERT_TRUE(RunAlone(Muon({"ranks=2", "data=2", "name=whole"})));
  const auto expected = AllTensors(At("whole", 5));
  for (const std::vector<std::string>& layout : std::vector<std::vector<std::string>>{
           {"ranks=2", "data=2", "zero=3"}, {"ranks=2", "data=2", "zero=1"}}) {
    RunWell(With(Muon(layout), {"resume=" + At("whole", 2)}));
    ExpectSameTensors(AllTensors(At("run", 5)), expected);
    std::filesystem::remove_all(Folder("run"));
  }
}

TEST_F(Optimizers, AChangedOptimizerStartsAnewAndIsLogged) {
  ASSERT_TRUE(RunAlone({"name=whole"}));
  EXPECT_TRUE(Succeeds(RunAlone(Muon({"resume=" + At("whole", 2)}))));
  const std::string log = Log();
  EXPECT_NE(log.find("optimizer.name was \"adamw\", is \"muon\""), std::string::npos) << log;
  EXPECT_TRUE(Contains(log, "tensors of the optimizer's state are not in the checkpoint"));
}

// average' = average + (weight - average) (1 - decay), from the weights before the first update.
TEST_F(Optimizers, AveragesFollowTheWeights) {
  ASSERT_TRUE(RunAlone({"optimizer.ema=0.75", "every=1", "lr=0.05"}));
  for (const auto& [name, value] : AllTensors(Folder("run") + "/model.safetensors")) {
    at::Tensor average;
    for (int step = 1; step <= 5; ++step) {
      const auto tensors = AllTensors(At("run", step));
      const at::Tensor& of_step = tensors.at("optimizer.ema." + name);
      if (step > 1) average += (tensors.at(name) - average) * 0.25;
      if (step == 1) average = of_step.clone();
      EXPECT_TRUE(at::allclose(of_step, average, 1e-5, 1e-7)) << name;
    }
  }
  const auto plain = Evaluate(Folder("run")), averaged = Evaluate(Folder("run"), {}, true);
  ASSERT_TRUE(averaged) << averaged.error().line();
  EXPECT_NE(plain.value().held_out_loss, averaged->held_out_loss);
  EXPECT_EQ(averaged->step, 5);
}

TEST_F(Optimizers, RefusesAveragesThatThereAreNot) {
  ASSERT_TRUE(RunAlone({}));
  EXPECT_TRUE(Refused(Evaluate(Folder("run"), {}, true), "optimizer.ema"));
}

TEST_F(Optimizers, RefuseWhatDoesNotCombine) {
  EXPECT_TRUE(Refused(RunAlone(Muon({"schedule=dualpipe", "ranks=2", "zero=1"})), "zero=0"));
  EXPECT_TRUE(Refused(RunAlone({"optimizer.groups=[{match: 'wqq'}]"}), "matches no parameter"));
}

}  // namespace
}  // namespace penstock
