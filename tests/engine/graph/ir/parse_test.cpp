// The text form of a graph is lossless: it parses, and the graph runs with bitwise equal results.
#include "graph/ir/parse.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cctype>
#include <random>

#include "graph/ir/flops.h"
#include "graph/ir/print.h"
#include "graph/passes/passes.h"
#include "tests/engine/graph/small_stage.h"
#include "tests/results.h"

namespace penstock::testing {
namespace {

std::map<ValueId, at::Tensor> ConstantsOf(const Graph& graph) {
  std::map<ValueId, at::Tensor> constants;
  for (const Bound& bound : graph.bound) {
    if (bound.kind == BoundKind::kConstant) constants[bound.value] = bound.tensor;
  }
  return constants;
}

// For every stage, all graphs after every pass.
TEST(ParseGraph, ParsesWhatIsPrinted) {
  int graphs_read = 0;
  for (const StageSpec& spec : {FirstStage(), MiddleStage(), LastStage(), WholeModel()}) {
    for (const Pass& pass : Passes()) {
      StageGraphs graphs =
          Build(spec, {.exact = false, .fuse = true, .stop_after = std::string(pass.name)}).value();
      for (const Graph* graph : AllGraphs(graphs)) {
        const std::string text = PrintGraph(*graph);
        const auto read = ParseGraph(text, ConstantsOf(*graph));
        ASSERT_TRUE(read) << read.error().line() << "\n" << text;
        ASSERT_EQ(PrintGraph(*read), text);
        ASSERT_EQ(FlopsOf(*read).value(), FlopsOf(*graph).value());
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

TEST(ParseGraph, ParsesHandwrittenText) {
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
  EXPECT_EQ(FlopsOf(graph).value(), 2 * 4 * 2 * 3);
}

TEST(ParseGraph, NamesTheLineOfAnError) {
  const auto message = [](std::string_view text) {
    const auto graph = ParseGraph(text);
    return graph ? "no error" : graph.error().line();
  };
  const std::string head = "graph g(%0: f32[4,2]) -> (%1)\n";
  const auto fails = [&](const std::string& line, const char* part) {
    const std::string text = message(head + line);
    EXPECT_NE(text.find(part), std::string::npos) << line << ": " << text;
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
  };
  fails("  %1: f32[4,2] = aten::nosuch(%0)", "line 2: 'aten::nosuch' is not a registered op");
  fails("  %1: f32[4,2 = aten::relu(%0)", "line 2: expected ']' at");
  fails("  %1: q7[4,2] = aten::relu(%0)", "a dtype");
  fails("  %1: f32[4,2]/[1] = aten::relu(%0)", "a stride for each size");
  fails("  %1: f32[4,2] = aten::mul.Scalar(%0, others=2)", "no argument 'others'");
  fails("  %1: f32[4,2] = aten::mul.Scalar(%0, other=2x)", "'2x' is not a number");
  fails("  %1: f32[4,2] = aten::relu(%0, %0)", "expected ')' at '%0)'");
  fails("  %1: f32[4,2] = aten::relu(%7)", "%7 is not a value of the graph");
  fails("  bound %1: f32[4,2] = constant", "has no tensor");
  fails("  %1: f32[4,2] = aten::relu(%0) and more", "expected the end of the line");
  fails("  %4294967297: f32[4,2] = aten::relu(%0)", "value numbers are 0 to 1048575");
  fails("  %1: f32[4,-2] = aten::relu(%0)", "sizes of at least 0");
  fails("  %1: f32[4000000000,4000000000] = aten::relu(%0)", "sizes that fit in memory");
}

TEST(ParseGraph, RejectsViewsOutsideOfTheirRoot) {
  const auto read = [](const std::string& view) {
    const auto graph = ParseGraph("graph g(%0: f32[4,2]) -> (%2)\n  %1: " + view +
                                  "\n  %2: f32[4,2] = aten::relu(%1)\n");
    return graph ? "accepted" : graph.error().line();
  };
  for (const char* inside :
       {"f32[8] = view %0", "f32[2,4]/[1,2] = view %0", "f32[6] = view %0 + 2",
        "f32[1] = view %0 + 7", "bf16[16] = view %0", "i64[3] = view %0 + 1",
        "f32[9]/[0] = view %0 + 7", "f32[0] = view %0 + 8", "f32[2,2]/[4,3] = view %0"}) {
    EXPECT_EQ(read(inside), "accepted") << inside;
  }
  for (const char* outside :
       {"f32[9] = view %0", "f32[2,4]/[1,3] = view %0", "f32[6] = view %0 + 3",
        "f32[8] = view %0 + -1", "bf16[17] = view %0", "i64[3] = view %0 + 2",
        "f32[1] = view %0 + 8", "f32[0] = view %0 + 9", "f32[2,2]/[4,4] = view %0",
        "f32[8]/[-1] = view %0 + 7", "f32[2]/[9223372036854775807] = view %0",
        "i64[2] = view %0 + 9223372036854775807"}) {
    EXPECT_TRUE(Contains(read(outside), "%1 is a view of %0 and lies outside of its memory"))
        << outside << ": " << read(outside);
  }
}

std::int64_t ItemSize(const TensorType& type) {
  return static_cast<std::int64_t>(c10::elementSize(type.dtype));
}

// Text with a random digit changed is rejected, or parses to a graph whose views are within their
// roots.
TEST(ParseGraph, AcceptsNoDamagedTextWithViewsOutside) {
  std::mt19937 random(3);
  const auto draw = [&](std::size_t count) { return random() % count; };
  const StageGraphs graphs = Build(LastStage()).value();
  const std::string text = PrintGraph(graphs.backward_input);
  const auto constants = ConstantsOf(graphs.backward_input);
  std::vector<std::size_t> digits;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (std::isdigit(static_cast<unsigned char>(text[i])) != 0) digits.push_back(i);
  }
  int accepted = 0;
  for (int round = 0; round < 400; ++round) {
    std::string damaged = text;
    damaged[digits[draw(digits.size())]] = "0123456789-9"[draw(12)];
    const auto graph = ParseGraph(damaged, constants);
    if (!graph) continue;
    ++accepted;
    for (const Node& node : graph->nodes) {
      ForEachInput(node, [&](ValueId id) {
        const TensorValue& value = graph->value(id);
        const TensorType& root = graph->value(graph->Root(id)).type;
        EXPECT_GE(value.view_offset, 0) << damaged;
        EXPECT_LE((value.view_offset + ExtentOf(value.type)) * ItemSize(value.type),
                  ExtentOf(root) * ItemSize(root))
            << damaged;
      });
    }
  }
  EXPECT_GT(accepted, 20);
}

}  // namespace
}  // namespace penstock::testing
