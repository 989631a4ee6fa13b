// Kernels compute what the ops that they replace compute, bitwise with `exact`. Without a compiler,
// the ops run.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <array>
#include <random>

#include "graph/ir/parse.h"
#include "graph/ir/print.h"
#include "graph/kernel/fused_op.h"
#include "graph/kernel/library.h"
#include "tests/engine/graph/kernel/kernel_cache.h"
#include "tests/engine/graph/small_stage.h"
#include "tests/results.h"

namespace penstock::testing {
namespace {

using In = const at::Tensor&;

int CountKernels(const Graph& graph) {
  int count = 0;
  for (const Node& node : graph.nodes) count += FusedKernelText(node) != nullptr ? 1 : 0;
  return count;
}

int CountNodes(const Graph& graph, std::string_view op) {
  int count = 0;
  for (const Node& node : graph.nodes) count += c10::toString(node.op.operator_name()) == op;
  return count;
}

// Returns the largest difference, relative to the largest number of `expected`.
double Distance(In expected, In actual) {
  if (!expected.defined() || !actual.defined())
    return expected.defined() == actual.defined() ? 0 : 1;
  const at::Tensor wide = expected.to(at::kDouble);
  const double most = std::max(wide.abs().max().item<double>(), 1e-30);
  return (wide - actual.to(at::kDouble)).abs().max().item<double>() / most;
}

void ExpectWithin(const Answer& expected, const Answer& actual, double bound) {
  EXPECT_LT(Distance(expected.outputs[0], actual.outputs[0]), bound);
  ASSERT_EQ(expected.input_gradients.size(), actual.input_gradients.size());
  for (std::size_t i = 0; i < expected.input_gradients.size(); ++i) {
    EXPECT_LT(Distance(expected.input_gradients[i], actual.input_gradients[i]), bound);
  }
  for (std::size_t i = 0; i < expected.gradients.size(); ++i) {
    EXPECT_LT(Distance(expected.gradients[i], actual.gradients[i]), bound) << "gradient " << i;
  }
}

// Compares the results of the stage's graphs with and without kernels. Returns the graphs with
// kernels.
StageGraphs Checked(const StageSpec& spec, bool exact, double bound = 1e-6) {
  CompileOptions options = {.exact = exact, .fuse = true};
  StageGraphs fused = Build(spec, options).value();
  options.fuse = false;
  const StageGraphs plain = Build(spec, options).value();
  for (int seed = 0; seed < 2; ++seed) {
    const Data data = RandomData(spec, seed);
    const Answer expected = RunGraphs(spec, plain, data, {});
    for (const bool reference : {true, false}) {
      const Answer actual = RunGraphs(spec, fused, data, {true, reference});
      exact ? ExpectSame(expected, actual) : ExpectWithin(expected, actual, bound);
    }
  }
  return fused;
}

StageSpec Spec(c10::ScalarType dtype,
               const std::function<at::Tensor(In input, In weight)>& forward) {
  StageSpec spec;
  const at::Tensor weight = at::randn({32}).to(dtype).requires_grad_(true);
  spec.parameters = {{"weight", weight}};
  spec.inputs = {at::randn({6, 5, 32}).to(dtype)};
  spec.input_gradients = {0};
  spec.forward = [=](std::span<const at::Tensor> inputs) {
    return std::vector{forward(inputs[0], weight)};
  };
  return spec;
}

at::Tensor Norm(In x, In w) {
  const at::Tensor wide = x.to(at::kFloat);
  return (wide * (wide.pow(2).mean(-1, true) + 1e-5).rsqrt()).to(x.scalar_type()) * w;
}

at::Tensor SwapHalves(In x) { return at::cat({x.narrow(-1, 16, 16), x.narrow(-1, 0, 16)}, -1); }

TEST(Fuse, IsBitwiseEqualForEveryStage) {
  for (const StageSpec& spec : {FirstStage(), MiddleStage(), LastStage(), WholeModel()}) {
    EXPECT_GT(CountKernels(Checked(spec, true).forward), 1);
  }
}

TEST(Fuse, IsCloseForEveryStage) {
  for (const StageSpec& spec : {FirstStage(), MiddleStage(), LastStage(), WholeModel()}) {
    // Gradients are sums over all tokens: a dozen roundings of the largest one.
    const StageGraphs graphs = Checked(spec, false, 2e-6);
    EXPECT_GE(CountKernels(graphs.forward),
              3);  // two norms, one of them with a residual, and SwiGLU
    EXPECT_GE(CountKernels(graphs.backward_input), spec.input_gradients.empty() ? 0 : 3);
  }
}

TEST(Fuse, FusesANormIntoOneKernel) {
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    const StageGraphs graphs = Checked(Spec(dtype, Norm), false, dtype == at::kFloat ? 1e-6 : 2e-2);
    EXPECT_EQ(graphs.forward.nodes.size(), 1u) << PrintGraph(graphs.forward);
    EXPECT_EQ(graphs.backward_input.nodes.size(), 1u) << PrintGraph(graphs.backward_input);
  }
}

TEST(Fuse, AccumulatesNormWeightsRowByRow) {
  const StageGraphs graphs = Checked(LastStage(), false);
  EXPECT_EQ(CountNodes(graphs.backward_weight, "penstock::fused_gather"), 2);
  EXPECT_EQ(CountNodes(graphs.backward_weight, "aten::sum.dim_IntList"), 0);
}

TEST(Fuse, IsBitwiseEqualInBf16) {
  const auto forward = [](In x, In w) {
    return Norm(x, w) * at::silu(x) + (x * w).pow(3) - x / w + SwapHalves(x * w) * x;
  };
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    EXPECT_GE(CountKernels(Checked(Spec(dtype, forward), true).forward), 1);
    Checked(Spec(dtype, forward), false, dtype == at::kFloat ? 2e-6 : 5e-2);
  }
}

TEST(Fuse, ReadsSwappedHalvesInPlace) {
  const StageSpec spec = Spec(at::kFloat, [](In x, In w) {
    const at::Tensor y = x.view({6, 5, 2, 16}).transpose(1, 2);
    return (y * w.narrow(0, 0, 16) +
            at::cat({y.narrow(-1, 8, 8), y.narrow(-1, 0, 8)}, -1) * w.narrow(0, 16, 16));
  });
  const StageGraphs graphs = Checked(spec, true);
  EXPECT_EQ(graphs.forward.nodes.size(), 1u) << PrintGraph(graphs.forward);
  EXPECT_EQ(graphs.backward_input.nodes.size(), 1u) << PrintGraph(graphs.backward_input);
}

// As the models of transformers compute rotary positions, for every exactness and dtype.
TEST(Fuse, FusesRotaryPositionsThatNegateAHalf) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const StageSpec spec = Spec(dtype, [](In x, In w) {
      const at::Tensor y = x.view({6, 5, 2, 16}).transpose(1, 2);
      const at::Tensor low = y.slice(-1, 0, 8), high = y.slice(-1, 8);
      return y * w.narrow(0, 0, 16) + at::cat({-high, low}, -1) * w.narrow(0, 16, 16);
    });
    for (const bool exact : {true, false}) {
      const StageGraphs graphs = Checked(spec, exact, dtype == at::kFloat ? 1e-6 : 2e-2);
      EXPECT_EQ(graphs.forward.nodes.size(), 1u) << PrintGraph(graphs.forward);
      EXPECT_EQ(graphs.backward_input.nodes.size(), 1u) << PrintGraph(graphs.backward_input);
    }
  }
}

// Generates graphs of random ops over tensors that broadcast: [6,4,8], views of it, rows, columns.
class RandomFusibleGraph {
 public:
  explicit RandomFusibleGraph(unsigned seed) : random_(seed) {}

  std::string Text() {
    text_ = "graph random(%0: f32[6,4,8], %1: f32[24,8], %2: f32[8], %3: f32[4,6,8]) -> (%OUT)\n";
    text_ += "  %4: f32[6,4,8] = view %1\n  %5: f32[6,4,8]/[8,48,1] = view %3\n";
    full_ = {0, 4};
    for (int i = 0; i < 14; ++i) AddNode();
    text_.replace(text_.find("%OUT"), 4,
                  fmt::format("%{}, %{}", full_[full_.size() - 2], full_.back()));
    return text_;
  }

 private:
  int Draw(int count) { return static_cast<int>(random_() % static_cast<unsigned>(count)); }
  int Pick(const std::vector<int>& from) { return from[Draw(static_cast<int>(from.size()))]; }
  int Add(const char* type, const std::string& call) {
    text_ += fmt::format("  %{}: {} = {}\n", next_, type, call);
    return next_++;
  }

  void AddNode() {
    const int a = Pick(full_);
    const char* op = std::array{"add", "sub", "mul"}[Draw(3)];
    if (Draw(8) == 0) {  // with another memory order
      const int transposed = Add("f32[6,4,8]/[8,48,1]", fmt::format("aten::{}.Tensor(%5, %2)", op));
      full_.push_back(
          Add("f32[6,4,8]", fmt::format("aten::{}.Tensor(%{}, %{})", op, a, transposed)));
      return;
    }
    const int choice = Draw(7);
    if (choice == 0 || (choice < 3 && rows_.empty())) {
      rows_.push_back(
          Add("f32[6,4,1]", fmt::format("aten::sum.dim_IntList(%{}, dim=[2], keepdim=True)", a)));
      return;
    }
    if (choice == 1) {
      rows_.push_back(Add("f32[6,4,1]", fmt::format("aten::sigmoid(%{})", Pick(rows_))));
      return;
    }
    std::string call =
        fmt::format("aten::{}.Tensor(%{}, %{})", op, a, Draw(3) == 0 ? 2 : Pick(full_));
    if (choice == 2) {
      call = fmt::format("aten::mul.Tensor(%{}, %{})", a, Pick(rows_));
    } else if (choice == 3) {
      call = fmt::format("aten::silu(%{})", a);
    } else if (choice == 4) {  // another part of the same memory
      const int part = Add("f32[4,8]", fmt::format("view %{} + 32", a == 4 ? 1 : a));
      call = fmt::format("aten::mul.Tensor(%{}, %{})", a, part);
    }
    full_.push_back(Add("f32[6,4,8]", call));
  }

  std::mt19937 random_;
  std::string text_;
  std::vector<int> full_, rows_;
  int next_ = 6;
};

TEST(Fuse, RandomGraphsStayClose) {
  int kernels = 0;
  for (unsigned seed = 0; seed < 12; ++seed) {
    const std::string text = RandomFusibleGraph(seed).Text();
    StageGraphs graphs;
    graphs.forward = ParseGraph(text).value();
    const std::vector<at::Tensor> inputs = {at::randn({6, 4, 8}), at::randn({24, 8}),
                                            at::randn({8}), at::randn({4, 6, 8})};
    const std::vector<at::Tensor> expected = RunReference(graphs.forward, {}, inputs);
    ASSERT_TRUE(Fuse(graphs, {.exact = false, .fuse = true}));
    kernels += CountKernels(graphs.forward);
    const std::vector<at::Tensor> actual = RunReference(graphs.forward, {}, inputs);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_LT(Distance(expected[i], actual[i]), 5e-6) << text << PrintGraph(graphs.forward);
    }
  }
  EXPECT_GT(kernels, 12);
}

TEST(Fuse, RunsTheOpsIfThereIsNoCompiler) {
  KernelCache cache;
  cache.Set("PENSTOCK_CXX", "/no/such/compiler");
  // A number that no other test's kernels contain.
  const StageSpec spec = Spec(at::kFloat, [](In x, In w) { return (x * w + 0.123) * w; });
  EXPECT_EQ(CountKernels(Checked(spec, true).forward), 0);
}

TEST(KernelText, ParsesBackAndReportsErrors) {
  const std::string text =
      "loops 6 | 4; out f32[6]; out bf16[6,4]; %0 load f32 in0 2 [4,1]; %1 square %0; %2 sum %1; "
      "%3 number -0.5; %4 mul %2 %3; store %4 f32 out0 0 [1,0]; %6 silu_backward %0 %4; "
      "store %6 bf16 out1 0 [4,1]";
  EXPECT_EQ(TextOf(KernelOf(text).value()), text);
  const auto fails = [](const char* wrong, const char* part) {
    EXPECT_TRUE(Refused(KernelOf(wrong), part)) << wrong;
  };
  fails("loops 6 4", "'|'");
  fails("loops 0 | 4", "a size of 1");
  fails("loops | 4; %0 twice %0", "an op for 'twice'");
  fails("loops | 4; %0 neg %0", "an earlier value");
  fails("loops | 4; %0 load f32 in0 0 [4,1]", "a stride for every loop");
  fails("loops | 4; %0 number 1; store %0 f32 out0 0 [1]", "an existing tensor");
}

}  // namespace
}  // namespace penstock::testing
