// Buffers: tensors that runs read anew and that forward may update, and values that code may read
// because they are constant.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "graph/capture/capture.h"
#include "graph/compile.h"
#include "graph/run/interpret.h"
#include "tests/results.h"

namespace penstock {
namespace {

using BufferForward = std::function<at::Tensor(const at::Tensor& input)>;

StageSpec SpecWithBuffers(std::vector<NamedTensor> buffers, const BufferForward& forward) {
  StageSpec spec = {
      .buffers = std::move(buffers), .inputs = {at::randn({4, 3})}, .input_gradients = {0}};
  spec.forward = [=](std::span<const at::Tensor> inputs) {
    return std::vector{forward(inputs[0])};
  };
  return spec;
}

// Runs the compiled forward, and returns what leaves the stage.
std::vector<at::Tensor> RunForward(const StageSpec& spec, const at::Tensor& input) {
  const StageProgram program = CompileStage(spec, {}).value();
  GraphProgram run(program.forward.graph, {});
  std::vector<at::Tensor> inputs = {input};
  std::vector<at::Tensor> outputs(program.forward.outputs.size());
  run.Run(inputs, outputs);
  outputs.resize(program.outputs.size() + program.updated_buffers.size());
  return outputs;
}

TEST(Buffers, AreReadAnewInEachRun) {
  const at::Tensor scale = at::ones({3});
  const StageSpec spec =
      SpecWithBuffers({{"scale", scale}}, [=](const at::Tensor& x) { return x * scale; });
  const StageProgram program = CompileStage(spec, {}).value();
  EXPECT_TRUE(program.updated_buffers.empty());
  GraphProgram run(program.forward.graph, {});
  scale.fill_(5);
  std::vector<at::Tensor> inputs = {spec.inputs[0]};
  std::vector<at::Tensor> outputs(program.forward.outputs.size());
  run.Run(inputs, outputs);
  EXPECT_TRUE(outputs[0].equal(spec.inputs[0] * 5));
}

TEST(Buffers, NewValuesOfUpdatedOnesLeaveTheForward) {
  const at::Tensor count = at::zeros({}, at::kLong);
  const StageSpec spec = SpecWithBuffers({{"count", count}}, [=](const at::Tensor& x) {
    count.add_(1);
    return x * count;
  });
  const std::vector<at::Tensor> outputs = RunForward(spec, spec.inputs[0]);
  EXPECT_EQ(count.item<std::int64_t>(), 0) << "capture must not change it";
  ASSERT_EQ(outputs.size(), 2U);
  EXPECT_TRUE(outputs[0].equal(spec.inputs[0]));
  EXPECT_EQ(outputs[1].item<std::int64_t>(), 1);
}

TEST(Buffers, BatchNormalizationUpdatesItsStatistics) {
  const at::Tensor mean = at::zeros({3}), variance = at::ones({3});
  const StageSpec spec =
      SpecWithBuffers({{"mean", mean}, {"variance", variance}}, [=](const at::Tensor& x) {
        return at::batch_norm(x, {}, {}, mean, variance, true, 0.1, 1e-5, false);
      });
  const at::Tensor input = at::randn({4, 3});
  const std::vector<at::Tensor> outputs = RunForward(spec, input);
  EXPECT_TRUE(mean.equal(at::zeros({3})));
  ASSERT_EQ(outputs.size(), 3U);
  const at::Tensor expected = at::batch_norm(input, {}, {}, mean, variance, true, 0.1, 1e-5, false);
  EXPECT_TRUE(outputs[0].equal(expected));
  EXPECT_TRUE(outputs[1].equal(mean));
  EXPECT_TRUE(outputs[2].equal(variance));
}

TEST(Buffers, StatisticsThatAreNoneAreRejected) {
  const at::Tensor mean = at::zeros({3}), variance = at::ones({3});
  EXPECT_TRUE(Refused(CaptureStage(SpecWithBuffers({},
                                                   [=](const at::Tensor& x) {
                                                     return at::batch_norm(x, {}, {}, mean,
                                                                           variance, true, 0.1,
                                                                           1e-5, false);
                                                   })),
                      "not buffers of the stage"));
}

TEST(ConstantValues, MayBeReadByCode) {
  const auto joint = CaptureStage(SpecWithBuffers({}, [](const at::Tensor& x) {
    const at::Tensor positions = at::arange(4);
    return positions.max().item<std::int64_t>() == 3 ? x * 2 : x;
  }));
  EXPECT_TRUE(joint) << joint.error().line();
}

TEST(ConstantValues, DoNotIncludeThoseOfBuffers) {
  const at::Tensor scale = at::ones({3});
  EXPECT_TRUE(Refused(CaptureStage(SpecWithBuffers({{"scale", scale}},
                                                   [=](const at::Tensor& x) {
                                                     return scale.sum().item<float>() > 0 ? x : -x;
                                                   })),
                      "reads a value out of a tensor"));
}

}  // namespace
}  // namespace penstock
