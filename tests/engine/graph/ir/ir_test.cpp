// The verifier rejects invalid graphs. The text form is readable.
#include "graph/ir/ir.h"

#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include "graph/ir/print.h"
#include "graph/ir/verify.h"
#include "tests/engine/graph/small_stage.h"
#include "tests/results.h"

namespace penstock::testing {
namespace {

// x W^T + 1.5, with everything that the text form can contain.
StageGraphs Linear() {
  StageSpec spec;
  const at::Tensor weight = at::randn({3, 2}).requires_grad_(true);
  spec.parameters = {{"weight", weight}};
  spec.inputs = {at::randn({4, 2})};
  spec.input_gradients = {0};
  spec.forward = [=](std::span<const at::Tensor> inputs) {
    return std::vector{inputs[0].mm(weight.t()).add(1.5)};
  };
  CompileOptions options;
  options.disabled = {"simplify"};  // keeps a constant argument in the text
  return Build(spec, options).value();
}

TEST(PrintGraph, IsReadable) {
  const StageGraphs graphs = Linear();
  EXPECT_EQ(PrintGraph(graphs.forward), R"(graph forward(%1: f32[4,2]) -> (%4)
  bound %0: f32[3,2] 24 B = parameter 0 weight
  %2: f32[2,3]/[1,2] = view %0
  %3: f32[4,3] 48 B 48 FLOP = aten::mm(%1, %2)
  %4: f32[4,3] 48 B = aten::add.Scalar(%3, other=1.5)
)");
  EXPECT_EQ(PrintGraph(graphs.backward_input), R"(graph backward_input(%5: f32[4,3]) -> (%8)
  bound %0: f32[3,2] 24 B = parameter 0 weight
  -- backward
  %8: f32[4,2] 32 B 48 FLOP = aten::mm(%5, %0)
)");
  EXPECT_EQ(PrintGraph(graphs.backward_weight),
            R"(graph backward_weight(%1: f32[4,2], %5: f32[4,3]) -> ()
  bound %9: f32[3,2] 24 B = gradient 0 weight
  -- backward
  %6: f32[3,4]/[1,3] = view %5
  %7: f32[3,2] 24 B 48 FLOP = aten::mm(%6, %1)
  aten::add_.Tensor(%9, %7)
)");
}

TEST(PrintDot, NamesEveryNode) {
  const StageGraphs graphs = Linear();
  const std::string dot = PrintDot(graphs.forward);
  for (const char* part : {"digraph forward", "aten::mm", "aten::add.Scalar", "weight", "out0"}) {
    EXPECT_NE(dot.find(part), std::string::npos) << part;
  }
}

TEST(Graph, AddedValuesLeaveReferencesValid) {
  Graph graph = Linear().forward;
  const TensorValue& first = graph.value(0);
  const TensorType type = first.type;
  for (int i = 0; i < 1000; ++i) graph.AddValue({type, kNoValue, 0});
  EXPECT_EQ(&graph.value(0), &first);
  EXPECT_EQ(first.type, type);
}

class InvalidGraph : public ::testing::Test {
 protected:
  void ExpectFault(const char* part) {
    EXPECT_TRUE(Refused(VerifyGraph(graph_), part, ErrorCode::kInternal));
  }
  StageGraphs graphs_ = Linear();
  Graph graph_ = graphs_.forward;
};

TEST_F(InvalidGraph, IsValidBeforeTheChange) { EXPECT_TRUE(VerifyGraph(graph_)); }

TEST_F(InvalidGraph, ReadBeforeProduced) {
  std::swap(graph_.nodes[0], graph_.nodes[1]);
  ExpectFault("read before it is produced");
}

TEST_F(InvalidGraph, ProducedTwice) {
  graph_.nodes.push_back(graph_.nodes.back());
  ExpectFault("is produced twice");
}

TEST_F(InvalidGraph, MissingArgument) {
  graph_.nodes[0].arguments.pop_back();
  ExpectFault("arguments, but the op takes 2");
}

TEST_F(InvalidGraph, TensorForANumber) {
  graph_.nodes[1].arguments[1] = graph_.inputs[0];  // add.Scalar's `other`
  ExpectFault("is not a tensor");
}

TEST_F(InvalidGraph, OutputOutOfRange) {
  graph_.outputs = {1000};
  ExpectFault("is not a value of the graph");
}

TEST_F(InvalidGraph, MissingOutputs) {
  graph_.nodes[0].outputs.clear();
  ExpectFault("the op returns 1");
}

TEST_F(InvalidGraph, ViewOfAView) {
  const ValueId view = std::get<ValueId>(graph_.nodes[0].arguments[1]);
  const ValueId deeper = graph_.AddValue({graph_.value(view).type, view, 0});
  graph_.nodes[0].arguments[1] = deeper;
  ExpectFault("which is a view itself");
}

TEST_F(InvalidGraph, MutatesAParameter) {
  graph_ = graphs_.backward_weight;
  for (Bound& bound : graph_.bound) bound.kind = BoundKind::kParameter;
  ExpectFault("is mutated, but is not a bound gradient");
}

TEST_F(InvalidGraph, ReadsAGradientAccumulator) {
  graph_ = graphs_.backward_weight;
  for (const Bound& bound : graph_.bound) graph_.outputs.push_back(bound.value);
  ExpectFault("is a gradient accumulator");
}

}  // namespace
}  // namespace penstock::testing
