// The text of a graph is the graph: it reads back, and runs to the same bits.
#include "graph/parse.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include "graph/flops.h"
#include "graph/passes.h"
#include "graph/print.h"
#include "small_stage.h"

namespace penstock::testing {
namespace {

std::map<ValueId, at::Tensor> ConstantsOf(const Graph& graph) {
  std::map<ValueId, at::Tensor> constants;
  for (const Bound& bound : graph.bound) {
    if (bound.kind == BoundKind::kConstant) constants[bound.value] = bound.tensor;
  }
  return constants;
}

// Of every stage, all graphs after every pass.
TEST(ParseGraph, ReadsBackWhatIsPrinted) {
  int graphs_read = 0;
  for (const StageSpec& spec : {FirstStage(), MiddleStage(), LastStage(), WholeModel()}) {
    for (const Pass& pass : Passes()) {
      CompileOptions options;
      options.exact = false;
      options.fuse = true;
      options.stop_after = pass.name;
      StageGraphs graphs = Build(spec, options).value();
      for (const Graph* graph : AllGraphs(graphs)) {
        const std::string text = PrintGraph(*graph);
        const auto read = ParseGraph(text, ConstantsOf(*graph));
        ASSERT_TRUE(read) << read.error().message << "\n" << text;
        ASSERT_EQ(PrintGraph(*read), text);
        ASSERT_EQ(FlopsOf(*read), FlopsOf(*graph));
        ++graphs_read;
      }
    }
  }
  EXPECT_GT(graphs_read, 50);
}

TEST(ParseGraph, RunsToTheSameBits) {
  for (const StageSpec& spec : {FirstStage(), MiddleStage(), LastStage(), WholeModel()}) {
    StageGraphs graphs = Build(spec).value();
    const Data data = RandomData(spec, 3);
    const Answer expected = RunGraphs(spec, graphs, data, {});
    for (Graph* graph : AllGraphs(graphs)) {
      *graph = ParseGraph(PrintGraph(*graph), ConstantsOf(*graph)).value();
    }
    ExpectSame(expected, RunGraphs(spec, graphs, data, {}));
  }
}

TEST(ParseGraph, ReadsWhatAPersonWrites) {
  const Graph graph = ParseGraph(R"(graph scaled(%0: f32[4,2], %1: f32[3,2]) -> (%4)
  %2: f32[2,3]/[1,2] = view %1
  %3: f32[4,3] = aten::mm(%0, %2)
  %4: f32[4,3] = aten::mul.Scalar(%3, other=0.5)
)")
                          .value();
  const at::Tensor a = at::randn({4, 2});
  const at::Tensor b = at::randn({3, 2});
  const std::vector<at::Tensor> inputs = {a, b};
  EXPECT_TRUE(at::equal(RunReference(graph, {}, inputs)[0], a.mm(b.t()).mul(0.5)));
  EXPECT_EQ(FlopsOf(graph), 2 * 4 * 2 * 3);
}

TEST(ParseGraph, NamesTheLineThatIsWrong) {
  const auto message = [](std::string_view text) {
    const auto graph = ParseGraph(text);
    return graph ? "no error" : graph.error().message;
  };
  const std::string head = "graph g(%0: f32[4,2]) -> (%1)\n";
  const auto fails = [&](const std::string& line, const char* part) {
    const std::string text = message(head + line);
    EXPECT_NE(text.find(part), std::string::npos) << line << ": " << text;
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
  };
  fails("  %1: f32[4,2] = aten::nosuch(%0)", "line 2: 'aten::nosuch' is no op");
  fails("  %1: f32[4,2 = aten::relu(%0)", "line 2: ']' must stand at");
  fails("  %1: q7[4,2] = aten::relu(%0)", "a dtype");
  fails("  %1: f32[4,2]/[1] = aten::relu(%0)", "a stride for each size");
  fails("  %1: f32[4,2] = aten::mul.Scalar(%0, others=2)", "no argument 'others'");
  fails("  %1: f32[4,2] = aten::mul.Scalar(%0, other=2x)", "'2x' is no number");
  fails("  %1: f32[4,2] = aten::relu(%0, %0)", "')' must stand");
  fails("  %1: f32[4,2] = aten::relu(%7)", "%7 is no value of the graph");
  fails("  bound %1: f32[4,2] = constant", "has no tensor");
  fails("  %1: f32[4,2] = aten::relu(%0) and more", "the line's end");
}

}  // namespace
}  // namespace penstock::testing
