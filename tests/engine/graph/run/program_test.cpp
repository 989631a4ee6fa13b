// A program frees the values of a run, keeps its bound values, and can run after an op throws.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "graph/run/interpret.h"
#include "tests/engine/graph/small_stage.h"

namespace penstock::testing {
namespace {

std::vector<at::Tensor> Parameters(const StageSpec& spec) {
  std::vector<at::Tensor> values;
  for (const NamedTensor& parameter : spec.parameters) values.push_back(parameter.tensor.detach());
  return values;
}

TEST(Program, FreesTheValuesOfARun) {
  const StageSpec spec = MiddleStage();
  const StageGraphs graphs = Build(spec).value();
  GraphProgram program(graphs.forward, {Parameters(spec), {}});
  std::vector<at::Tensor> inputs = {at::randn({kBatch, kSequence, kDim})};
  const c10::weak_intrusive_ptr<c10::StorageImpl> input(
      c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(
          inputs[0].storage().unsafeGetStorageImpl()));
  std::vector<at::Tensor> outputs(graphs.forward.outputs.size());
  program.Run(inputs, outputs);
  EXPECT_FALSE(inputs[0].defined());
  EXPECT_TRUE(input.expired());
  for (const at::Tensor& output : outputs) EXPECT_EQ(output.storage().use_count(), 1);
}

TEST(Program, ReadsUpdatedParameters) {
  const StageSpec spec = MiddleStage();
  const StageGraphs graphs = Build(spec).value();
  const std::vector<at::Tensor> parameters = Parameters(spec);
  GraphProgram program(graphs.forward, {parameters, {}});
  const Data data = RandomData(spec, 7);
  for (int i = 0; i < 2; ++i) {
    std::vector<at::Tensor> inputs = data.inputs;
    std::vector<at::Tensor> outputs(graphs.forward.outputs.size());
    program.Run(inputs, outputs);
    EXPECT_TRUE(at::equal(outputs[0], RunAutograd(spec, data).outputs[0]));
    for (const at::Tensor& parameter : parameters) at::Tensor(parameter).mul_(1.25);
  }
}

TEST(Program, RunsAfterAnException) {
  const StageSpec spec = FirstStage();
  const StageGraphs graphs = Build(spec).value();
  GraphProgram program(graphs.forward, {Parameters(spec), {}});
  std::vector<at::Tensor> outputs(graphs.forward.outputs.size());
  std::vector<at::Tensor> beyond = {at::zeros({kBatch, kSequence}, at::kLong).add(kVocabulary)};
  EXPECT_ANY_THROW(program.Run(beyond, outputs));
  const Data data = RandomData(spec, 8);
  std::vector<at::Tensor> inputs = data.inputs;
  program.Run(inputs, outputs);
  EXPECT_TRUE(at::equal(outputs[0], RunAutograd(spec, data).outputs[0]));
}

TEST(RunReference, RejectsInputsOfAnotherType) {
  const StageSpec spec = MiddleStage();
  const StageGraphs graphs = Build(spec).value();
  const std::vector<at::Tensor> inputs = {at::randn({1, 2, 3})};
  EXPECT_THROW(RunReference(graphs.forward, {Parameters(spec), {}}, inputs), InternalError);
}

}  // namespace
}  // namespace penstock::testing
