// Compiled stages compute on the test device what they compute on the CPU.
#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <gtest/gtest.h>

#include "tests/engine/device/device.h"
#include "tests/engine/graph/small_stage.h"
#include "tests/results.h"

namespace penstock::testing {
namespace {

struct StageCase {
  const char* name;
  StageSpec (*make)();
};

class StageOnDevice : public ::testing::TestWithParam<StageCase> {
 protected:
  // Flash attention has no generic form.
  void SetUp() override { at::globalContext().setSDPUseFlash(false); }
  void TearDown() override { SetDeviceOfStages(at::kCPU); }

  static StageSpec Make(c10::Device device) {
    SetDeviceOfStages(device);
    at::manual_seed(1);
    return GetParam().make();
  }
};

std::vector<at::Tensor> Moved(std::vector<at::Tensor> tensors, c10::Device device) {
  for (at::Tensor& tensor : tensors) {
    if (tensor.defined()) tensor = tensor.to(device);
  }
  return tensors;
}

TEST_P(StageOnDevice, ComputesWhatTheCpuDoes) {
  const c10::Device device = kTestDevice;
  const StageSpec on_cpu = Make(at::kCPU), on_device = Make(device);
  CompileOptions exact;
  const auto expected_graphs = ValueOf(Build(on_cpu, exact));
  const auto graphs = ValueOf(Build(on_device, exact));
  const Data data = RandomData(on_cpu, 5);
  const Data moved = {Moved(data.inputs, device), Moved(data.output_gradients, device)};
  for (const bool split : {false, true}) {
    const Runner runner = {.split = split, .reference = false};
    const Answer expected = RunGraphs(on_cpu, expected_graphs, data, runner);
    TakeReport();
    Answer answer = RunGraphs(on_device, graphs, moved, runner);
    const DeviceReport report = TakeReport();
    EXPECT_TRUE(report.races.empty()) << report.races.front();
    EXPECT_TRUE(report.host_operations.empty()) << report.host_operations.front();
    EXPECT_GT(report.tasks, 10);
    for (std::vector<at::Tensor>* tensors :
         {&answer.outputs, &answer.input_gradients, &answer.gradients}) {
      *tensors = Moved(*tensors, at::kCPU);
    }
    ExpectSame(expected, answer);
  }
}

// Also with the passes that round otherwise; some of them are for CPUs alone.
TEST_P(StageOnDevice, ComputesAboutWhatTheCpuDoes) {
  const StageSpec on_cpu = Make(at::kCPU), on_device = Make(kTestDevice);
  const auto expected_graphs = Build(on_cpu, CompileOptions()),
             graphs = Build(on_device, {.exact = false});
  ASSERT_TRUE(graphs) << graphs.error().line();
  const Data data = RandomData(on_cpu, 5);
  const Data moved = {Moved(data.inputs, kTestDevice), Moved(data.output_gradients, kTestDevice)};
  const Answer expected = RunGraphs(on_cpu, *expected_graphs, data, {});
  const Answer answer = RunGraphs(on_device, *graphs, moved, {});
  EXPECT_EQ(TakeReport().races, std::vector<std::string>());
  const auto expect_near = [](const std::vector<at::Tensor>& left,
                              const std::vector<at::Tensor>& right) {
    ASSERT_EQ(left.size(), right.size());
    for (std::size_t i = 0; i < left.size(); ++i) {
      ASSERT_EQ(left[i].defined(), right[i].defined());
      if (!left[i].defined()) continue;
      EXPECT_TRUE(at::allclose(left[i], right[i].cpu(), 1e-4, 1e-5)) << i;
    }
  };
  expect_near(expected.outputs, answer.outputs);
  expect_near(expected.input_gradients, answer.input_gradients);
  expect_near(expected.gradients, answer.gradients);
}

INSTANTIATE_TEST_SUITE_P(Stages, StageOnDevice,
                         ::testing::Values(StageCase{"first", FirstStage},
                                           StageCase{"middle", MiddleStage},
                                           StageCase{"last", LastStage},
                                           StageCase{"whole", WholeModel}),
                         [](const auto& info) { return info.param.name; });

TEST(StagesOnDevices, AreOnOne) {
  StageSpec spec = MiddleStage();
  spec.inputs[0] = spec.inputs[0].to(kTestDevice);
  EXPECT_TRUE(Refused(Build(spec), "input 0 is on test_device:0, but parameter norm1 is on cpu"));
}

}  // namespace
}  // namespace penstock::testing
