// Recomputation is bitwise equal, within the save budget, and at the lowest cost.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "graph/analysis/recompute_plan.h"
#include "graph/ir/parse.h"
#include "graph/ir/print.h"
#include "graph/ops/module_scope.h"
#include "tests/engine/graph/small_stage.h"
#include "tests/results.h"

namespace penstock::testing {
namespace {

StageProgram Program(const StageSpec& spec, const CompileOptions& options) {
  return MakeStageProgram(Build(spec, options).value());
}

void ExpectMatchesAutograd(const StageSpec& spec, const CompileOptions& options) {
  const StageGraphs graphs = Build(spec, options).value();
  const Data data = RandomData(spec, 7);
  const Answer expected = RunAutograd(spec, data);
  ExpectSame(expected, RunGraphs(spec, graphs, data, {true, true}));
  ExpectSame(expected, RunGraphs(spec, graphs, data, {true, false}));
}

TEST(Recompute, SatisfiesAnyBudgetBitwise) {
  for (const StageSpec& spec : {FirstStage(), MiddleStage(), LastStage(), WholeModel()}) {
    CompileOptions options;
    const std::int64_t all = Program(spec, options).saved_bytes;
    options.save_budget = 0;
    const std::int64_t least = Program(spec, options).saved_bytes;
    EXPECT_LT(least, all / 4);
    ExpectMatchesAutograd(spec, options);
    for (const double part : {0.1, 0.3, 0.5, 0.8}) {
      options.save_budget =
          least + static_cast<std::int64_t>(part * static_cast<double>(all - least));
      const StageProgram program = Program(spec, options);
      EXPECT_LE(program.saved_bytes, options.save_budget);
      ExpectMatchesAutograd(spec, options);
    }
  }
}

TEST(Recompute, ForWeightComposesWithRecompute) {
  for (const StageSpec& spec : {FirstStage(), MiddleStage(), LastStage(), WholeModel()}) {
    for (const std::int64_t budget : {kSaveAll, std::int64_t{0}}) {
      CompileOptions options = {.save_budget = budget};
      const StageProgram plain = Program(spec, options);
      options.save_budget_for_weight = 0;
      const StageProgram least = Program(spec, options);
      EXPECT_LE(least.live_bytes, plain.live_bytes);
      EXPECT_LE(least.saved_bytes, plain.saved_bytes);
      ExpectMatchesAutograd(spec, options);
      options.save_budget_for_weight = (plain.live_bytes + least.live_bytes) / 2;
      EXPECT_LE(Program(spec, options).live_bytes, options.save_budget_for_weight);
      ExpectMatchesAutograd(spec, options);
    }
  }
  CompileOptions options = {.save_budget_for_weight = 0};
  EXPECT_LT(Program(MiddleStage(), options).live_bytes, Program(MiddleStage(), {}).live_bytes / 3);
}

TEST(Recompute, RejectsABudgetThatIsTooSmall) {
  CompileOptions options = {.save_budget = 1};
  EXPECT_TRUE(Refused(Build(MiddleStage(), options), "must be saved, but the budget is 1 B"));
}

TEST(Recompute, NeverRepeatsRandomNodes) {
  StageSpec spec;
  const at::Tensor weight = at::randn({6, 6}).requires_grad_(true);
  spec.parameters = {{"weight", weight}};
  spec.inputs = {at::randn({4, 6})};
  spec.input_gradients = {0};
  spec.forward = [=](std::span<const at::Tensor> inputs) {
    const at::Tensor dropped = at::dropout((inputs[0] * 2).mm(weight).tanh(), 0.5, true);
    return std::vector{dropped.mm(weight).tanh()};
  };
  CompileOptions options = {.save_budget = 0};
  ExpectMatchesAutograd(spec, options);
  const StageGraphs graphs = Build(spec, options).value();
  for (const Node& node : graphs.backward.nodes) EXPECT_FALSE(IsRandom(node));
}

// tanh(x) in the MLP, tanh of that in no module, tanh of that in attention.
StageSpec MarkedStage() {
  StageSpec spec;
  const at::Tensor weight = at::randn({6, 6}).requires_grad_(true);
  spec.parameters = {{"weight", weight}};
  spec.inputs = {at::randn({4, 6})};
  spec.input_gradients = {0};
  spec.forward = [=](std::span<const at::Tensor> inputs) {
    at::Tensor x = inputs[0].mm(weight);
    {
      const ModuleScope mlp(ModuleKind::kMlp);
      x = x.mm(weight).tanh();
      const ModuleScope excluded(ModuleKind::kNone);
      x = x.mm(weight).tanh();
    }
    const ModuleScope attention(ModuleKind::kAttention);
    return std::vector{x.mm(weight).tanh().mm(weight)};
  };
  return spec;
}

TEST(Recompute, RepeatsOnlyNodesOfTheRequestedModules) {
  const StageSpec spec = MarkedStage();
  const std::int64_t all = Program(spec, {}).saved_bytes;
  const std::vector<std::vector<ModuleKind>> choices = {
      {ModuleKind::kMlp}, {ModuleKind::kAttention}, {ModuleKind::kMlp, ModuleKind::kAttention}};
  for (const std::vector<ModuleKind>& modules : choices) {
    CompileOptions options = {.save_budget = 0, .recompute_modules = modules};
    const StageGraphs graphs = Build(spec, options).value();
    std::size_t tanhs = 0;  // the backward of tanh is another op
    for (const Node& node : graphs.backward.nodes) {
      if (node.module == ModuleKind::kNone) continue;
      EXPECT_NE(std::find(modules.begin(), modules.end(), node.module), modules.end());
      tanhs += node.op.operator_name().name == "aten::tanh" ? 1 : 0;
    }
    EXPECT_EQ(tanhs, modules.size());
    EXPECT_LE(MakeStageProgram(graphs).saved_bytes, all);
    ExpectMatchesAutograd(spec, options);
    options.save_budget_for_weight = 0;
    ExpectMatchesAutograd(spec, options);
  }
}

TEST(Recompute, RejectsModulesThatTheModelDoesNotDeclare) {
  CompileOptions options = {.save_budget = 0, .recompute_modules = {ModuleKind::kMlp}};
  EXPECT_TRUE(Refused(Build(MiddleStage(), options), "no ModuleScope of 'mlp'"));
}

// A chain of elementwise ops and matmuls in which nodes read random earlier ones.
Graph RandomGraph(std::mt19937& random, int nodes) {
  std::string text = fmt::format("graph g(%0: f32[64,64]) -> (%{})\n", nodes);
  for (int i = 1; i <= nodes; ++i) {
    const auto pick = [&] { return static_cast<int>(random() % static_cast<unsigned>(i)); };
    text += fmt::format("  %{}: f32[64,64] = aten::{}(%{}, %{})\n", i,
                        random() % 2 == 0 ? "mm" : "maximum", pick(), pick());
  }
  return ParseGraph(text).value();
}

struct Price {
  std::int64_t bytes = 0, cost = 0;
  bool fits = true;
};

// Returns the price of computing `needed` if exactly the nodes in the mask `again` run again.
Price PriceOf(const Graph& graph, const std::vector<ValueId>& needed, unsigned again) {
  Price price;
  ValueSet wanted(graph, needed);
  for (std::size_t i = graph.nodes.size(); i-- > 0;) {
    if ((again >> i & 1U) == 0) continue;
    price.cost += CostOfRunning(graph, graph.nodes[i]);
    ForEachInput(graph.nodes[i], [&](ValueId id) { wanted.insert(id); });
  }
  for (ValueId id = 0; id < static_cast<ValueId>(graph.values.size()); ++id) {
    const bool recomputed = id > 0 && (again >> (id - 1) & 1U) != 0;
    if (wanted.contains(id) && !recomputed) price.bytes += BytesOf(graph.value(id).type);
  }
  return price;
}

TEST(PlanRecompute, NoPlanBeatsItInBytesAndCost) {
  std::mt19937 random(5);
  constexpr int kNodes = 9;
  for (int round = 0; round < 60; ++round) {
    const Graph graph = RandomGraph(random, kNodes);
    const ValueSet nothing(graph, {});
    RecomputeProblem problem;
    problem.graph = &graph;
    for (const Node& node : graph.nodes) problem.producers.push_back(&node);
    for (ValueId id = 0; id <= kNodes; ++id) {
      if (random() % 2 == 0) problem.needed.push_back(id);
    }
    problem.alive = &nothing;
    const auto budget = static_cast<std::int64_t>(random() % 8) * 64 * 64 * 4;
    const RecomputePlan plan = PlanRecompute(problem, budget);
    unsigned again = 0;
    for (std::size_t i = 0; i < plan.recomputed.size(); ++i)
      again |= plan.recomputed[i] ? 1U << i : 0U;
    const Price own = PriceOf(graph, problem.needed, again);
    ASSERT_EQ(own.bytes, plan.bytes);
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    for (unsigned other = 0; other < 1U << kNodes; ++other) {
      const Price price = PriceOf(graph, problem.needed, other);
      least = std::min(least, price.bytes);
      ASSERT_FALSE(price.bytes <= own.bytes && price.cost < own.cost) << PrintGraph(graph);
    }
    ASSERT_TRUE(plan.bytes <= budget || plan.bytes == least);
  }
}

}  // namespace
}  // namespace penstock::testing
