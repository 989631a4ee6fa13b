#include "scenario/machine/machine_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/files.h"
#include "tests/results.h"

namespace penstock {
namespace {

class MachineFileTest : public testing::Test {
 protected:
  void Write(const std::string& text) { ASSERT_TRUE(WriteFileAtomically(path_, text)); }
  std::string Refusal(const std::string& text) {
    Write(text);
    const auto read = ReadMachineFile(path_);
    return read ? "" : read.error().line().substr(path_.size());
  }
  Scenario On(const std::string& device) {
    Scenario scenario;
    scenario.model = "llama-3-8b";
    scenario.device = device;
    scenario.machine = path_;
    return scenario;
  }

  std::string path_ = testing::TempDir() + "machine_" + std::to_string(getpid()) + ".yaml";
};

TEST_F(MachineFileTest, FillsWhatTheScenarioLeavesOpen) {
  Write(
      "constants:\n"
      "  - for: {device: h100, precision: bf16, release: 2025-09}\n"
      "    flops_efficiency: 0.4\n"
      "  - for: {device: h100, precision: bf16, release: 2026-08}\n"
      "    flops_efficiency: {value: 0.5, error: 0.01}\n"
      "  - for: {device: a100}\n"
      "    flops_efficiency: 0.45\n"
      "    bandwidth_efficiency: 0.7\n"
      "  - bandwidth_efficiency: 0.6\n");
  Scenario scenario = On("h100");
  ASSERT_TRUE(FillFromMachine(scenario));
  EXPECT_EQ(scenario.flops_efficiency, 0.5);  // of the newest release
  EXPECT_EQ(scenario.bandwidth_efficiency, 0.6);
  scenario = On("h100");
  scenario.release = "2025-09";
  ASSERT_TRUE(FillFromMachine(scenario));
  EXPECT_EQ(scenario.flops_efficiency, 0.4);
  scenario = On("h100");
  scenario.flops_efficiency = 0.9;
  ASSERT_TRUE(FillFromMachine(scenario));
  EXPECT_EQ(scenario.flops_efficiency, 0.9);
  scenario = On("b200");
  EXPECT_TRUE(Contains(FillFromMachine(scenario).error().line(),
                       "it has no flops_efficiency for `device` b200"));
  scenario.flops_efficiency = 0.6;
  EXPECT_TRUE(FillFromMachine(scenario));
}

TEST_F(MachineFileTest, TellsWhichConstantsItFills) {
  Write(
      "constants:\n"
      "  - for: {device: h100}\n"
      "    flops_efficiency: {value: 0.5, error: 0.01}\n"
      "    bandwidth_efficiency: {value: 0.7, error: 0.05}\n"
      "  - for: {device: a100}\n"
      "    flops_efficiency: {value: 0.4, error: 0.02}\n"
      "    bandwidth_efficiency: 0.6\n");
  Scenario scenario = On("h100");
  scenario.bandwidth_efficiency = 0.9;
  const auto constants = ConstantsInEffect(scenario);
  ASSERT_TRUE(constants);
  ASSERT_EQ(constants->size(), 1);
  EXPECT_EQ(constants->front().field, "flops_efficiency");
  EXPECT_EQ(constants->front().error, "0.01");
  scenario.machine.reset();
  EXPECT_TRUE(ConstantsInEffect(scenario)->empty());
}

TEST_F(MachineFileTest, ReadsWhatItWrites) {
  const MachineFile machine{"Where it is from\nand when",
                            {{"flops_efficiency", {{"device", "a100"}}, "0.5", "0.01"},
                             {"bandwidth_efficiency", {{"device", "a100"}}, "0.7", ""},
                             {"hidden_communication", {}, "0.25", "0.1"}}};
  Write(ToYaml(machine));
  const auto read = ReadMachineFile(path_);
  ASSERT_TRUE(read) << read.error().line();
  EXPECT_EQ(ToYaml({machine.remark, read->constants}), ToYaml(machine));
  ASSERT_EQ(read->constants.size(), 3u);
  EXPECT_EQ(read->constants[0].error, "0.01");
  EXPECT_TRUE(read->constants[2].of.empty());
}

TEST_F(MachineFileTest, AProfileHasTheCostsOfItsModel) {
  MachineFile machine;
  machine.profile.emplace();
  machine.profile->layers = 6;
  machine.profile->comm = 2e-5;
  machine.profile->message_bytes = 4096;
  machine.profile->update = "optimizer=post-validation";
  Write(ToYaml(machine));
  Scenario scenario;
  scenario.machine = path_;
  ASSERT_TRUE(FillFromMachine(scenario));
  ASSERT_TRUE(scenario.profiled);
  EXPECT_EQ(scenario.profiled->layers, 6);
  EXPECT_EQ(scenario.comm->value, 2e-5);
  EXPECT_EQ(scenario.message_bytes, "4096B");
  EXPECT_EQ(scenario.time_unit, "s");
  EXPECT_EQ(scenario.pass, std::vector<std::string>{"optimizer=post-validation"});
  EXPECT_TRUE(scenario.repeat);
  // What the scenario says counts.
  Scenario own;
  own.machine = path_;
  own.comm = TimeValue{1, true};
  own.pass = {"optimizer"};
  own.repeat = 7;
  ASSERT_TRUE(FillFromMachine(own));
  EXPECT_EQ(own.comm->value, 1);
  EXPECT_EQ(own.pass, std::vector<std::string>{"optimizer"});
  EXPECT_EQ(own.repeat, 7);
  Scenario priced;
  priced.machine = path_;
  priced.cost = "1,1,1";
  EXPECT_TRUE(Contains(FillFromMachine(priced).error().line(), "other costs are given"));
  Scenario of_model = On("h100");
  EXPECT_TRUE(Contains(FillFromMachine(of_model).error().line(), "it has only a profile"));
}

TEST_F(MachineFileTest, RefusalsNameTheLine) {
  EXPECT_TRUE(Contains(Refusal("constants: 3\n"), ": line 1: constants: a list of maps is needed"));
  EXPECT_TRUE(Contains(Refusal("a: 1\n"), ": line 1"));
  EXPECT_TRUE(Contains(Refusal("constants:\n  - flops: 0.5\n"), "did you mean"));
  EXPECT_TRUE(
      Contains(Refusal("constants:\n  - flops_efficiency: x\n"), ": line 2: flops_efficiency"));
  EXPECT_TRUE(Contains(Refusal("constants:\n  - for: {gpu: a}\n    flops_efficiency: 0.5\n"),
                       "line 2: gpu"));
  EXPECT_TRUE(
      Contains(Refusal("constants:\n  - flops_efficiency: {error: 1}\n"), "give its value"));
}

}  // namespace
}  // namespace penstock
