// attention_by_matmul computes what the fused kernel computes, for every memory layout.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/engine/graph/small_stage.h"
#include "tests/results.h"

namespace penstock::testing {
namespace {

struct AttentionCase {
  const char* name;
  std::int64_t batch, heads, length, dim;
  bool heads_inside;  // [batch, length, heads, dim] in memory, as after projections
  bool causal;
  std::optional<double> scale;
  c10::ScalarType dtype;
  bool rewritten = true;
  std::int64_t groups = 1;  // query heads per key head
};

StageSpec Spec(const AttentionCase& c) {
  StageSpec spec;
  const at::Tensor weight = (1 + at::randn({c.dim}) * 0.1).to(c.dtype).requires_grad_(true);
  spec.parameters = {{"weight", weight}};
  spec.inputs = {c.heads_inside ? at::randn({c.batch, c.length, c.heads, c.dim}).to(c.dtype)
                                : at::randn({c.batch, c.heads, c.length, c.dim}).to(c.dtype)};
  spec.input_gradients = {0};
  spec.forward = [=](std::span<const at::Tensor> inputs) {
    const at::Tensor x = inputs[0] * weight;
    const at::Tensor q = c.heads_inside ? x.transpose(1, 2) : x;
    const at::Tensor k = q.narrow(1, 0, c.heads / c.groups);
    const bool grouped = c.groups > 1;
    const at::Tensor mixed =
        at::scaled_dot_product_attention(q, k * 2, k + 1, {}, 0.0, c.causal, c.scale, grouped);
    return std::vector{mixed * weight + at::scaled_dot_product_attention(mixed, k, k, {}, 0.0,
                                                                         c.causal, {}, grouped)};
  };
  return spec;
}

int CountFlash(const Graph& graph) {
  int count = 0;
  for (const Node& node : graph.nodes) {
    count += static_cast<int>(node.op.operator_name().name.find("flash") != std::string::npos);
  }
  return count;
}

void PrintTo(const AttentionCase& c, std::ostream* out) { *out << c.name; }

class Attention : public ::testing::TestWithParam<AttentionCase> {};

TEST_P(Attention, AgreesWithTheFusedKernel) {
  const AttentionCase& c = GetParam();
  const StageSpec spec = Spec(c);
  CompileOptions options;
  EXPECT_EQ(CountFlash(Build(spec, options)->joint.graph), 4);
  options.exact = false;
  const auto graphs = ValueOf(Build(spec, options));
  EXPECT_EQ(CountFlash(graphs.joint.graph), c.rewritten ? 0 : 4);
  const Data data = RandomData(spec, 3);
  const Answer expected = RunAutograd(spec, data);
  const double tolerance = c.dtype == at::kFloat ? 1e-4 : 6e-2;
  for (const bool reference : {true, false}) {
    const Answer actual = RunGraphs(spec, graphs, data, {true, reference});
    const auto close = [&](const at::Tensor& a, const at::Tensor& b) {
      const double size = a.abs().max().to(at::kFloat).item<float>();
      return at::allclose(a.to(at::kFloat), b.to(at::kFloat), tolerance, tolerance * size);
    };
    EXPECT_TRUE(close(expected.outputs[0], actual.outputs[0]));
    EXPECT_TRUE(close(expected.input_gradients[0], actual.input_gradients[0]));
    EXPECT_TRUE(close(expected.gradients[0], actual.gradients[0]));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, Attention,
    ::testing::Values(
        AttentionCase{"HeadsInside", 2, 3, 32, 4, true, true, {}, at::kFloat},
        AttentionCase{"HeadsOutside", 2, 3, 32, 4, false, true, {}, at::kFloat},
        AttentionCase{"OneSample", 1, 3, 32, 4, true, true, {}, at::kFloat},
        AttentionCase{"OneHead", 2, 1, 32, 4, true, true, {}, at::kFloat},
        AttentionCase{"NotCausal", 2, 3, 32, 4, true, false, {}, at::kFloat},
        AttentionCase{"Scaled", 1, 2, 32, 4, true, true, 0.3, at::kFloat},
        AttentionCase{"Bf16", 2, 2, 40, 8, true, true, {}, at::kBFloat16},
        AttentionCase{"TooShort", 1, 1, 31, 2, true, true, {}, at::kFloat, false},
        AttentionCase{"TwoBlocks", 2, 2, 256, 4, true, true, {}, at::kFloat},
        AttentionCase{"ThreeBlocksHeadsOutside", 2, 2, 384, 4, false, true, {}, at::kFloat},
        AttentionCase{"NoBlocks", 1, 2, 250, 4, true, true, {}, at::kFloat},
        AttentionCase{"LongBf16", 1, 2, 384, 8, true, true, {}, at::kBFloat16},
        AttentionCase{"LongNotCausal", 1, 1, 384, 2, true, false, {}, at::kFloat, false},
        AttentionCase{"GroupsInside", 2, 6, 32, 4, true, true, {}, at::kFloat, true, 3},
        AttentionCase{"GroupsOutside", 2, 4, 32, 4, false, true, {}, at::kFloat, true, 2},
        AttentionCase{"OneKeyHead", 1, 4, 32, 4, true, false, {}, at::kFloat, true, 4},
        AttentionCase{"GroupsTwoBlocks", 2, 4, 256, 4, true, true, {}, at::kFloat, true, 2},
        AttentionCase{"GroupsTwoBlocksOutside", 1, 4, 256, 4, false, true, {}, at::kFloat, true, 2},
        AttentionCase{"GroupsBf16", 2, 4, 40, 8, true, true, {}, at::kBFloat16, true, 2},
        AttentionCase{"TooLong", 1, 1, 640, 2, true, true, {}, at::kFloat, false}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace penstock::testing
