// A run of a program allocates only its results.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "graph/kernel/fused_op.h"
#include "graph/passes/passes.h"
#include "graph/run/interpret.h"
#include "tests/engine/graph/small_stage.h"
#include "tests/engine/runtime/count_allocations.h"

namespace penstock::testing {
namespace {

// A new tensor allocates itself and its storage. Its bytes are not counted.
constexpr std::int64_t kAllocationsPerTensor = 2;

TEST(Program, AFusedRunAllocatesOnlyItsResults) {
  StageSpec spec;
  const at::Tensor weight = at::randn({32}).requires_grad_(true);
  spec.parameters = {{"weight", weight}};
  spec.inputs = {at::randn({6, 32})};
  spec.input_gradients = {0};
  spec.forward = [=](std::span<const at::Tensor> inputs) {
    const at::Tensor hidden = at::silu(inputs[0] * weight) * inputs[0] + 0.5;
    return std::vector{hidden, at::silu(hidden * hidden.sum(-1, true)) * weight};
  };
  const StageGraphs graphs = Build(spec, {.exact = false, .fuse = true}).value();
  std::int64_t results = 0;
  for (const Node& node : graphs.forward.nodes) {
    ASSERT_NE(FusedKernelText(node), nullptr) << "the op is not fused";
    results += static_cast<std::int64_t>(node.outputs.size());
  }
  GraphProgram program(graphs.forward, {{weight.detach()}, {}});
  std::vector<at::Tensor> outputs(graphs.forward.outputs.size());
  for (int run = 0; run < 3; ++run) {
    std::vector<at::Tensor> inputs = {at::randn({6, 32})};
    const std::int64_t before = AllocationsOfThisThread();
    program.Run(inputs, outputs);
    if (run == 0) continue;
    EXPECT_EQ(AllocationsOfThisThread() - before, kAllocationsPerTensor * results);
  }
}

}  // namespace
}  // namespace penstock::testing
