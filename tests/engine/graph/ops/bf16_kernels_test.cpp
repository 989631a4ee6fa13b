// bf16 matmuls and attention in fp32. The tests install the kernels on any machine. op_test.cpp
// tests their results.
#include "graph/ops/bf16_kernels.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "graph/ops/bf16_matmul.h"
#include "tests/engine/graph/small_stage.h"
#include "tests/results.h"

namespace penstock::testing {
namespace {

using at::Tensor;

Tensor Random(std::vector<std::int64_t> sizes) { return at::randn(sizes).to(at::kBFloat16); }

TEST(Bf16Product, KeepsNumbersThatAreNotFinite) {
  const float infinity = std::numeric_limits<float>::infinity();
  const Tensor a = at::full({1, 1, 2}, infinity, at::kBFloat16);
  const Tensor b = at::full({1, 2, 1}, 1, at::kBFloat16);
  EXPECT_EQ(BatchedProduct(a, b, {}, 0, 1).item<float>(), infinity);
  EXPECT_TRUE(std::isnan(BatchedProduct(a, 0 * b, {}, 0, 1).item<float>()));
  // As in BLAS, an addend with factor 0 is not read.
  const Tensor nothing = at::full({1, 1, 1}, std::nanf(""), at::kBFloat16);
  EXPECT_EQ(BatchedProduct(b, b.mT().contiguous().mT().narrow(1, 0, 1), nothing, 0, 1)
                .narrow(1, 0, 1)
                .max()
                .item<float>(),
            1);
}

TEST(Bf16Kernels, PassOtherCallsToAten) {
  const Tensor a = at::randn({8, 4}), b = at::randn({4, 8});
  const Tensor expected = at::mm(a, b);
  const Bf16Kernels kernels;
  EXPECT_TRUE(at::equal(at::mm(a, b), expected));
  EXPECT_EQ(at::mm(Random({0, 4}), Random({4, 3})).sizes(), (std::vector<std::int64_t>{0, 3}));
  EXPECT_EQ(at::mm(Random({2, 0}), Random({0, 3})).abs().max().item<float>(), 0);
  EXPECT_THROW(at::mm(Random({8, 4}), Random({8, 4})), c10::Error);
  EXPECT_THROW(at::mm(Random({8, 4}), b), c10::Error);
}

// A projection, causal attention over its result and another projection.
StageSpec Bf16Stage() {
  const auto parameter = [] { return (0.3 * Random({32, 32})).requires_grad_(true); };
  const Tensor in = parameter(), out = parameter();
  StageSpec spec = {.parameters = {{"in", in}, {"out", out}},
                    .inputs = {Random({2, 40, 32})},
                    .input_gradients = {0}};
  spec.forward = [=](std::span<const Tensor> inputs) {
    const Tensor x = at::linear(inputs[0], in).view({2, 40, 4, 8}).transpose(1, 2);
    const Tensor mixed = at::scaled_dot_product_attention(x, x, x, {}, 0.0, true);
    return std::vector{at::linear(mixed.transpose(1, 2).reshape({2, 40, 32}), out)};
  };
  return spec;
}

TEST(Bf16Kernels, ExactGraphsStayBitwiseEqualToAutograd) {
  const Bf16Kernels kernels;
  const StageSpec spec = Bf16Stage();
  const auto graphs = ValueOf(Build(spec, {.fuse = true}));
  const Data data = RandomData(spec, 3);
  ExpectSame(RunAutograd(spec, data), RunGraphs(spec, graphs, data, {true, false}));
}

}  // namespace
}  // namespace penstock::testing
