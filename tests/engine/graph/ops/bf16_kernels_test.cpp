// bf16 matmuls and attention in fp32. The tests install the kernels on any machine.
#include "graph/ops/bf16_kernels.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "graph/ops/bf16_matmul.h"
#include "tests/engine/graph/small_stage.h"

namespace penstock::testing {
namespace {

using at::Tensor;

Tensor Random(std::vector<std::int64_t> sizes) { return at::randn(sizes).to(at::kBFloat16); }
// Sums of products of these are exact in fp32 in any order, but usually not in bf16.
Tensor Whole(std::vector<std::int64_t> sizes) {
  return at::randint(-9, 10, sizes, at::kFloat).to(at::kBFloat16);
}

// Returns the largest difference, relative to the largest number.
double Difference(const Tensor& a, const Tensor& b) {
  const Tensor of_b = b.to(at::kFloat);
  return ((a.to(at::kFloat) - of_b).abs().max() / of_b.abs().max()).item<double>();
}
constexpr double kBf16Rounding = 1.0 / 256;  // half of the last of 8 significant bits

// [n, k] by [k, m] over a batch: within one block, in several blocks along each dimension, and in a
// batch that does not fit into a block.
struct MatmulCase {
  std::int64_t batch, n, k, m;
};
class Bf16Product : public ::testing::TestWithParam<MatmulCase> {};

TEST_P(Bf16Product, IsRoundedOnce) {
  const MatmulCase& c = GetParam();
  const Tensor left = Whole({c.batch, c.n, c.k}), right = Whole({c.batch, c.k, c.m});
  const Tensor added = Whole({c.n, c.m});
  const Tensor product = at::bmm(left.to(at::kFloat), right.to(at::kFloat));
  // Unit stride along rows, along columns, and along neither.
  for (const Tensor& a :
       {left, left.mT().contiguous().mT(), left.repeat({1, 1, 2}).slice(2, 0, c.k),
        left.unsqueeze(-1).repeat({1, 1, 1, 2}).select(3, 0)}) {
    const Tensor b = a.stride(2) == 1 ? right : right.mT().contiguous().mT();
    EXPECT_TRUE(at::equal(BatchedProduct(a, b, {}, 0, 1), product.to(at::kBFloat16)));
    const Tensor sum = 0.5 * product + 2 * added.to(at::kFloat);
    EXPECT_TRUE(at::equal(BatchedProduct(a, b, added, 2, 0.5), sum.to(at::kBFloat16)));
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, Bf16Product,
                         ::testing::Values(MatmulCase{1, 1, 1, 1}, MatmulCase{3, 7, 5, 9},
                                           MatmulCase{1, 530, 40, 17}, MatmulCase{1, 17, 1030, 530},
                                           MatmulCase{600, 40, 64, 33}));

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

// Compares every replaced op with ATen's kernel.
TEST(Bf16Kernels, AgreeWithAten) {
  const Tensor a = Random({40, 24}), b = Random({24, 56}), c = Random({40, 56}), row = Random({56});
  const Tensor as = Random({3, 40, 24}), bs = Random({3, 24, 56}), cs = Random({3, 40, 56});
  const auto run = [&] {
    Tensor out = at::zeros({40, 56}, at::kBFloat16), outs = at::zeros({3, 40, 56}, at::kBFloat16);
    std::vector<Tensor> results = {at::mm(a, b),
                                   at::addmm(c, a, b, 0.5, 2),
                                   at::addmm(row, a, b),
                                   c.clone().addmm_(a, b),
                                   at::bmm(as, bs),
                                   at::baddbmm(cs, as, bs, 0.5, 2),
                                   at::baddbmm(c, as, bs),
                                   cs.clone().baddbmm_(as, bs),
                                   at::mm_out(out, a, b).clone(),
                                   at::addmm_out(out, c, a, b).clone(),
                                   at::bmm_out(outs, as, bs).clone(),
                                   at::baddbmm_out(outs, cs, as, bs).clone()};
    return results;
  };
  const std::vector<Tensor> expected = run();
  const Bf16Kernels kernels;
  const std::vector<Tensor> results = run();
  for (std::size_t i = 0; i < results.size(); ++i) {
    EXPECT_EQ(results[i].scalar_type(), at::kBFloat16);
    EXPECT_LE(Difference(results[i], expected[i]), kBf16Rounding) << "result " << i;
  }
  EXPECT_TRUE(at::equal(results[0], BatchedProduct(a.unsqueeze(0), b.unsqueeze(0), {}, 0, 1)[0]));
}

TEST(Bf16Kernels, AttentionAgreesWithAten) {
  const Tensor q = Random({2, 3, 70, 16}), k = Random({2, 3, 70, 16}), v = Random({2, 3, 70, 16});
  const Tensor g = Random({2, 3, 70, 16});
  const auto run = [&] {
    const auto [o, sums] =
        at::_scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, true, {}, {});
    const auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
        g, q, k, v, o, sums, 0.0, true, {}, {});
    return std::vector<Tensor>{o, dq, dk, dv};
  };
  const std::vector<Tensor> expected = run();
  const Bf16Kernels kernels;
  const std::vector<Tensor> results = run();
  for (std::size_t i = 0; i < results.size(); ++i) {
    EXPECT_EQ(results[i].scalar_type(), at::kBFloat16);
    EXPECT_EQ(results[i].strides(), expected[i].strides());
    // ATen rounds the probabilities, too.
    EXPECT_LE(Difference(results[i], expected[i]), 2 * kBf16Rounding) << "result " << i;
  }
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
  StageSpec spec;
  spec.parameters = {{"in", in}, {"out", out}};
  spec.inputs = {Random({2, 40, 32})};
  spec.input_gradients = {0};
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
  CompileOptions options;
  options.fuse = true;
  const auto graphs = Build(spec, options);
  ASSERT_TRUE(graphs) << graphs.error().line();
  const Data data = RandomData(spec, 3);
  ExpectSame(RunAutograd(spec, data), RunGraphs(spec, *graphs, data, {true, false}));
}

}  // namespace
}  // namespace penstock::testing
