// Values that are alive at the same time share no bytes, and runs use the plan.
#include "graph/run/memory_plan.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "graph/ir/parse.h"
#include "graph/ir/print.h"
#include "graph/passes/passes.h"
#include "graph/run/arena.h"
#include "graph/run/interpret.h"
#include "tests/engine/graph/small_stage.h"

namespace penstock::testing {
namespace {

std::vector<Graph> GraphsOf(const CompileOptions& options) {
  std::vector<Graph> all;
  for (const StageSpec& spec : {FirstStage(), MiddleStage(), LastStage(), WholeModel()}) {
    const StageGraphs graphs = Build(spec, options).value();
    for (const Graph* graph : {&graphs.forward, &graphs.backward_input, &graphs.backward_weight}) {
      all.push_back(*graph);
    }
  }
  return all;
}

// Returns, by node, the roots produced by the run that are alive while the node runs.
std::vector<std::vector<ValueId>> Alive(const Graph& graph) {
  std::map<ValueId, std::pair<std::size_t, std::size_t>> life;
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    for (const ValueId output : graph.nodes[i].outputs) {
      if (output != kNoValue) life[output] = {i, i};
    }
    ForEachInput(graph.nodes[i], [&](ValueId id) {
      const auto found = life.find(graph.Root(id));
      if (found != life.end()) found->second.second = i;
    });
  }
  for (const ValueId output : graph.outputs) {
    if (output == kNoValue) continue;
    const auto found = life.find(graph.Root(output));
    if (found != life.end()) found->second.second = graph.nodes.size();
  }
  std::vector<std::vector<ValueId>> alive(graph.nodes.size());
  for (const auto& [value, when] : life) {
    for (std::size_t i = when.first; i <= std::min(when.second, alive.size() - 1); ++i) {
      alive[i].push_back(value);
    }
  }
  return alive;
}

void ExpectValidPlan(const Graph& graph) {
  const MemoryPlan plan = PlanMemory(graph);
  std::int64_t peak = 0;
  for (const std::vector<ValueId>& alive : Alive(graph)) {
    std::vector<std::pair<std::int64_t, std::int64_t>> blocks;
    std::int64_t bytes = 0;
    for (const ValueId value : alive) {
      const std::int64_t size = StorageBytes(graph.value(value).type);
      const std::int64_t offset = plan.offsets[value];
      bytes += size;
      if (offset >= 0) blocks.emplace_back(offset, offset + size);
    }
    peak = std::max(peak, bytes);
    std::sort(blocks.begin(), blocks.end());
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      ASSERT_LE(blocks[i].second, plan.arena_bytes);
      ASSERT_EQ(blocks[i].first % 64, 0);
      if (i == 0) continue;
      ASSERT_LE(blocks[i - 1].second, blocks[i].first) << PrintGraph(graph);
    }
  }
  EXPECT_EQ(plan.peak_bytes, peak);
}

TEST(MemoryPlan, NoTwoLiveValuesShareBytes) {
  for (const bool exact : {true, false}) {
    for (const std::int64_t budget : {kSaveAll, std::int64_t{0}}) {
      CompileOptions options = {
          .exact = exact, .save_budget = budget, .save_budget_for_weight = budget};
      for (const Graph& graph : GraphsOf(options)) ExpectValidPlan(graph);
    }
  }
}

TEST(MemoryPlan, ReusesBytes) {
  std::string text = "graph chain(%0: f32[64]) -> (%20)\n";
  for (int i = 1; i <= 20; ++i) {
    text += fmt::format("  %{}: f32[64] = aten::relu(%{})\n", i, i - 1);
  }
  const MemoryPlan plan = PlanMemory(ParseGraph(text).value());
  EXPECT_EQ(plan.arena_bytes, 2 * 256);
  EXPECT_EQ(plan.peak_bytes, 2 * 256);
}

// Ops without scratch memory: every allocation of a run is one of its values.
TEST(MemoryPlan, ARunUsesItsBlocks) {
  const Graph graph = ParseGraph(R"(graph run(%0: f32[32,32], %1: f32[32,32]) -> (%6)
  %2: f32[32,32] = aten::mm(%0, %1)
  %3: f32[32,32] = aten::tanh(%2)
  %4: f32[32,32] = aten::mul.Tensor(%2, %3)
  %7: f32[32,32]/[1,32] = view %4
  %5: f32[32,32] = aten::mm(%7, %1)
  %6: f32[32,32] = aten::relu(%5)
)")
                          .value();
  GraphProgram program(graph, {});
  EXPECT_EQ(program.peak_bytes(), 3 * 4096);
  EXPECT_EQ(program.arena_bytes(), 3 * 4096);
  const at::Tensor a = at::ones({32, 32}), b = at::ones({32, 32}) * 0.01;
  std::vector<at::Tensor> outputs(1);
  const auto run = [&] {
    std::vector<at::Tensor> inputs = {a, b};
    program.Run(inputs, outputs);
  };
  run();
  const std::int64_t before = Arena::OfThread().hits();
  run();
  EXPECT_EQ(Arena::OfThread().hits() - before, 4);  // all except the outputs
  EXPECT_TRUE(at::equal(outputs[0], (a.mm(b) * a.mm(b).tanh()).t().mm(b).relu()));
}

TEST(Arena, ReturnsEachBlockOnceForItsSize) {
  Arena arena;
  arena.Reserve(256);
  const PlannedBlock blocks[] = {{64, 0}, {64, 64}, {100, 128}};
  arena.Expect(blocks);
  auto* const first = static_cast<std::byte*>(arena.Take(64));
  EXPECT_EQ(arena.Take(64), first + 64);
  EXPECT_EQ(arena.Take(64), nullptr);
  EXPECT_EQ(arena.Take(99), nullptr);
  EXPECT_EQ(arena.Take(100), first + 128);
  arena.Expect({});
  EXPECT_EQ(arena.Take(64), nullptr);
}

}  // namespace
}  // namespace penstock::testing
