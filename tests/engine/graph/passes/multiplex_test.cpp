// A multiplexed graph computes bitwise what its two graphs compute one after the other, and keeps
// the required order.
#include "graph/passes/multiplex.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "base/index.h"
#include "graph/ir/parse.h"
#include "graph/ir/print.h"
#include "graph/ir/verify.h"
#include "graph/ops/collective.h"
#include "graph/overlap_stages.h"
#include "graph/passes/passes.h"
#include "graph/passes/split_collectives.h"
#include "graph/run/interpret.h"
#include "tests/engine/graph/small_stage.h"
#include "tests/results.h"

namespace penstock::testing {
namespace {

constexpr int kGroups[] = {50, 51};

// Returns the data reversed in blocks of four bytes. Reads it in Wait, so it must stay in memory
// until then.
class Reversing final : public RankGroup {
 public:
  Reversing() : RankGroup(0, 1) {}
  Status Wait(Ticket ticket) override {
    const CollectiveCall& call = pending_.at(Index(ticket));
    for (std::size_t i = 0; i < call.input.size(); i += 4) {
      std::copy_n(call.input.data() + i, 4, call.output.data() + call.output.size() - 4 - i);
    }
    return {};
  }
  void Abort(const Error&) override {}

 private:
  Ticket DoStart(const CollectiveCall& call) override {
    pending_.push_back(call);
    return static_cast<Ticket>(pending_.size()) - 1;
  }

  std::vector<CollectiveCall> pending_;
};

// Writes the text of a random graph of 4x4 matrices: two inputs, a parameter, two gradients that it
// may add to, and collectives in two groups.
class GraphWriter {
 public:
  GraphWriter(std::mt19937& random, bool adds, bool draws)
      : random_(random), adds_(adds), draws_(draws) {}

  std::string Write(int nodes) {
    for (int i = 0; i < nodes; ++i) Node();
    return fmt::format(
               "graph g(%0: f32[4,4], %1: f32[4,4]) -> (%{}, %{})\n"
               "  bound %2: f32[4,4] = parameter 0 w\n"
               "  bound %3: f32[4,4] = gradient 0 w\n  bound %4: f32[4,4] = gradient 1 v\n",
               Any(), Any()) +
           body_;
  }

 private:
  int Draw(int below) { return static_cast<int>(random_() % static_cast<unsigned>(below)); }
  int OneOf(const std::vector<int>& values) {
    return values[Draw(static_cast<int>(values.size()))];
  }
  int Any() { return OneOf(values_); }

  void Node() {
    const int kind = Draw(8);
    if (adds_ && kind == 0) {
      body_ += fmt::format("  aten::add_.Tensor(%{}, %{})\n", 3 + Draw(2), Any());
      return;
    }
    if (kind == 1) {
      body_ += fmt::format("  %{}: f32[4,4]/[1,4] = view %{}\n", next_, OneOf(roots_));
      values_.push_back(next_++);
      return;
    }
    // Pointwise ops take no views, because their results would have the strides of the views.
    std::string call;
    if (kind <= 3) {
      const std::string_view collectives[] = {
          "all_to_all(%{}, group={})",
          "all_gather(%{}, ranks=1, group={})",
          "reduce_scatter(%{}, ranks=1, group={})",
          "all_reduce(%{}, group={})",
          "all_to_all_uneven(%{}, sent=[4], received=[4], group={})",
          "broadcast(%{}, root=0, group={})",
          "reduce(%{}, root=0, group={})"};
      call =
          "penstock::" + fmt::format(fmt::runtime(collectives[Draw(7)]), Any(), kGroups[Draw(2)]);
    } else if (draws_ && kind == 4) {
      call = fmt::format("aten::bernoulli.p(%{}, p=0.5)", OneOf(roots_));
    } else if (kind == 5) {
      call = fmt::format("aten::tanh(%{})", OneOf(roots_));
    } else if (kind == 6) {
      call = fmt::format("aten::mm(%{}, %{})", Any(), Draw(3));
    } else {
      call = fmt::format("aten::sub.Tensor(%{}, %{})", OneOf(roots_), OneOf(roots_));
    }
    body_ += fmt::format("  %{}: f32[4,4] = {}\n", next_, call);
    roots_.push_back(next_);
    values_.push_back(next_++);
  }

  std::mt19937& random_;
  bool adds_;
  bool draws_;
  int next_ = 5;
  std::vector<int> values_ = {0, 1, 2};
  std::vector<int> roots_ = {0, 1, 2};
  std::string body_;
};

struct Outcome {
  std::vector<at::Tensor> outputs = {};
  std::vector<at::Tensor> gradients = {};
};

void ExpectSameBits(const Outcome& expected, const Outcome& actual) {
  const auto same = [](const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
    ASSERT_EQ(a.size(), b.size());
    for (std::size_t i = 0; i < a.size(); ++i) {
      ASSERT_EQ(a[i].defined(), b[i].defined());
      if (!a[i].defined()) continue;
      EXPECT_FALSE(a[i].isnan().any().item<bool>());
      EXPECT_TRUE(at::equal(a[i], b[i])) << i;
    }
  };
  same(expected.outputs, actual.outputs);
  same(expected.gradients, actual.gradients);
}

// Runs graphs one after another with the same parameters, zero gradients and one seed.
class Runs {
 public:
  explicit Runs(const std::vector<at::Tensor>& parameters) : parameters_(parameters) {}

  template <class RunGraph>
  Outcome Of(const std::vector<std::pair<const Graph*, std::vector<at::Tensor>>>& graphs,
             RunGraph&& run) const {
    GraphBinding binding{parameters_, {}, at::detail::createCPUGenerator(9)};
    for (const at::Tensor& each : parameters_) {
      binding.gradients.push_back(at::zeros_like(each));
    }
    Outcome outcome = {.gradients = binding.gradients};
    for (const auto& [graph, inputs] : graphs) {
      for (at::Tensor& each : run(*graph, binding, inputs)) {
        outcome.outputs.push_back(std::move(each));
      }
    }
    return outcome;
  }

 private:
  std::vector<at::Tensor> parameters_;
};

std::vector<at::Tensor> RunFast(const Graph& graph, const GraphBinding& binding,
                                std::vector<at::Tensor> inputs) {
  GraphProgram program(graph, binding);
  std::vector<at::Tensor> outputs(graph.outputs.size());
  program.Run(inputs, outputs);
  return outputs;
}

std::vector<at::Tensor> RunSlow(const Graph& graph, const GraphBinding& binding,
                                const std::vector<at::Tensor>& inputs) {
  return RunReference(graph, binding, inputs);
}

std::vector<at::Tensor> Both(std::vector<at::Tensor> first, const std::vector<at::Tensor>& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

// Returns, by gradient, the ops that mutate it and their operands, in order.
std::map<std::string, std::vector<std::string>> Effects(const Graph& graph) {
  std::map<std::string, std::vector<std::string>> effects;
  for (const Node& node : graph.nodes) {
    const std::string name = c10::toString(node.op.operator_name());
    if (MutatedArgument(node.op.schema()) >= 0) {
      const ValueId gradient = graph.Root(std::get<ValueId>(node.arguments[0]));
      effects[fmt::format("gradient {}", gradient)].push_back(
          fmt::format("{} %{}", name, std::get<ValueId>(node.arguments[1])));
    }
  }
  return effects;
}

// Returns the collectives in the order in which they start, and what they send.
std::vector<std::string> Starts(const Graph& graph) {
  std::vector<std::string> starts;
  for (const Node& node : WithWholeCollectives(graph).nodes) {
    if (!IsCollective(node)) continue;
    starts.push_back(fmt::format("{} {} %{}", node.op.operator_name().name, GroupOf(node),
                                 std::get<ValueId>(node.arguments[0])));
  }
  return starts;
}

class RandomGraphs : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    for (const int group : kGroups) {
      endpoints_.push_back(std::make_unique<GroupEndpoint>(group, std::make_unique<Reversing>()));
    }
  }

 private:
  std::vector<std::unique_ptr<GroupEndpoint>> endpoints_;
};

// Random costs, because every order that the scheduler may choose must be correct.
NodeCosts RandomCosts(std::mt19937& random, const std::vector<const Graph*>& graphs) {
  NodeCosts costs;
  for (const Graph* graph : graphs) {
    for (const Node& node : graph->nodes) {
      costs.Set(*graph, node, static_cast<double>(random() % 8));
    }
  }
  return costs;
}

TEST_P(RandomGraphs, MatchSequentialRunsBitwise) {
  std::mt19937 random(static_cast<unsigned>(GetParam()));
  for (int round = 0; round < 20; ++round) {
    const bool first_draws = random() % 2 == 0;
    const Graph first =
        ParseGraph(GraphWriter(random, random() % 2 == 0, first_draws).Write(12)).value();
    const Graph second = ParseGraph(GraphWriter(random, true, !first_draws).Write(12)).value();
    const NodeCosts costs = RandomCosts(random, {&first, &second});
    const auto multiplexed = ValueOf(MultiplexGraphs(first, second, costs));
    const Graph& graph = multiplexed.graph;
    SCOPED_TRACE(PrintGraph(first) + PrintGraph(second) + PrintGraph(graph));
    EXPECT_TRUE(Succeeds(VerifyGraph(graph)));
    EXPECT_LE(multiplexed.seconds, multiplexed.seconds_in_turn);
    EXPECT_EQ(Effects(JoinGraphs(first, second, {})), Effects(graph));
    EXPECT_EQ(PrintGraph(ParseGraph(PrintGraph(graph)).value()), PrintGraph(graph));

    const std::vector<at::Tensor> a = {at::randn({4, 4}), at::randn({4, 4})};
    const std::vector<at::Tensor> b = {at::randn({4, 4}), at::randn({4, 4})};
    const Runs runs({at::randn({4, 4}), at::randn({4, 4})});
    const Outcome expected = runs.Of({{&first, a}, {&second, b}}, RunSlow);
    Graph filled = JoinGraphs(first, second, {});
    HideCollectives(filled, first.nodes.size(), Mixing::kSecondFills, costs);
    ExpectSameBits(expected, runs.Of({{&filled, Both(a, b)}}, RunFast));
    // Other sizes have other costs.
    EXPECT_EQ(Starts(graph), Starts(ValueOf(MultiplexGraphs(first, second, {})).graph));
    ExpectSameBits(expected, runs.Of({{&graph, Both(a, b)}}, RunSlow));
    ExpectSameBits(expected, runs.Of({{&graph, Both(a, b)}}, RunFast));
    ASSERT_FALSE(HasFailure());
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomGraphs, ::testing::Range(0, 5));

struct MultiplexCase {
  const char* name;
  StageSpec (*make)();
};
void PrintTo(const MultiplexCase& value, std::ostream* out) { *out << value.name; }

// Matmuls with all_to_all in between, as for experts on other ranks.
StageSpec Experts() {
  StageSpec spec;
  const auto weight = [](std::int64_t rows, std::int64_t columns) {
    return (at::randn({rows, columns}) * 0.3).requires_grad_(true);
  };
  const at::Tensor in = weight(kDim, kDim);
  const at::Tensor up = weight(kDim, 3 * kDim);
  const at::Tensor down = weight(3 * kDim, kDim);
  spec.parameters = {{"in", in}, {"up", up}, {"down", down}};
  spec.inputs = {at::randn({4 * kSequence, kDim})};
  spec.input_gradients = {0};
  spec.forward = [=](std::span<const at::Tensor> inputs) {
    const at::Tensor sent = AllToAll(inputs[0].mm(in).tanh(), kGroups[0]);
    return std::vector{inputs[0] + AllToAll(sent.mm(up).tanh().mm(down), kGroups[0])};
  };
  return spec;
}

class EveryStageOverlapped : public ::testing::TestWithParam<MultiplexCase> {};

// Returns the saved values of a microbatch after its forward, in the order of the backward's
// inputs.
std::vector<at::Tensor> SavedForBackward(const StageGraphs& graphs, const Graph& backward,
                                         const Data& data, const Runs& runs) {
  std::map<ValueId, at::Tensor> saved;
  const Outcome forward = runs.Of({{&graphs.forward, data.inputs}}, RunSlow);
  for (std::size_t i = 0; i < forward.outputs.size(); ++i) {
    saved[graphs.forward.outputs[i]] = forward.outputs[i];
  }
  for (std::size_t i = 0; i < data.inputs.size(); ++i) {
    saved[graphs.forward.inputs[i]] = data.inputs[i];
  }
  const std::vector<ValueId>& gradients = graphs.joint.output_gradients;
  for (std::size_t i = 0; i < data.output_gradients.size(); ++i) {
    saved[gradients[i]] = data.output_gradients[i];
  }
  std::vector<at::Tensor> inputs;
  for (const ValueId input : backward.inputs) inputs.push_back(saved.at(input));
  return inputs;
}

std::vector<CompileOptions> WaysToCompile() {
  std::vector<CompileOptions> ways(6);
  for (std::size_t i = 0; i < ways.size(); ++i) {
    ways[i].overlapped = true;
    ways[i].exact = i % 2 == 0;
    ways[i].fuse = i >= 4;
    if (i >= 2) ways[i].save_budget = ways[i].save_budget_for_weight = 0;
  }
  return ways;
}

TEST_P(EveryStageOverlapped, MatchesSequentialRunsBitwise) {
  const GroupEndpoint end(kGroups[0], std::make_unique<Reversing>());
  const StageSpec spec = GetParam().make();
  for (const CompileOptions& options : WaysToCompile()) {
    const auto graphs = ValueOf(Build(spec, options));
    const Graph backward = WholeBackward(graphs);
    const std::vector<Node>& nodes = graphs.overlapped.nodes;
    const auto halves = std::count_if(nodes.begin(), nodes.end(), IsCollective);
    EXPECT_EQ(nodes.size() - Index(halves / 2),
              WithWholeCollectives(graphs.forward).nodes.size() + backward.nodes.size());
    std::vector<at::Tensor> parameters;
    for (const NamedTensor& each : spec.parameters) parameters.push_back(each.tensor.detach());
    const Runs runs(parameters);
    const Data a = RandomData(spec, 5);
    const std::vector<at::Tensor> b = SavedForBackward(graphs, backward, RandomData(spec, 6), runs);
    const Outcome expected = runs.Of({{&graphs.forward, a.inputs}, {&backward, b}}, RunSlow);
    ExpectSameBits(expected, runs.Of({{&graphs.overlapped, Both(a.inputs, b)}}, RunSlow));
    ExpectSameBits(expected, runs.Of({{&graphs.overlapped, Both(a.inputs, b)}}, RunFast));
  }
}

TEST_P(EveryStageOverlapped, AssignsTheSlotOfEveryInput) {
  CompileOptions options = {.overlapped = true};
  const auto program = ValueOf(CompileStage(GetParam().make(), options));
  const StagePiece& piece = program.overlapped;
  ASSERT_EQ(piece.inputs.size(), piece.graph.inputs.size());
  ASSERT_EQ(piece.last.size(), piece.graph.inputs.size());
  ASSERT_EQ(piece.outputs.size(), piece.graph.outputs.size());
  for (std::size_t i = 0; i < piece.inputs.size(); ++i) EXPECT_LT(piece.inputs[i], program.slots);
  // The inputs after forward's are what the two halves of backward read and do not produce.
  const std::size_t own = program.forward.inputs.size();
  std::set<int> slots(piece.inputs.begin() + static_cast<std::ptrdiff_t>(own), piece.inputs.end());
  std::set<int> expected(program.backward_input.inputs.begin(),
                         program.backward_input.inputs.end());
  expected.insert(program.backward_weight.inputs.begin(), program.backward_weight.inputs.end());
  for (const int live : program.backward_input.outputs) expected.erase(live);
  EXPECT_EQ(slots, expected);
}

// Overlapping two stages needs only their programs.
TEST_P(EveryStageOverlapped, OverlapsWithAnotherStagesBackward) {
  const GroupEndpoint end(kGroups[0], std::make_unique<Reversing>());
  const StageSpec spec = GetParam().make();
  const StageSpec other = Experts();
  const StageProgram forward = CompileStage(spec, {}).value();
  const StageGraphs graphs = Build(other).value();
  const StageProgram backward = MakeStageProgram(graphs);
  const auto piece = ValueOf(
      OverlapStages(forward, backward, static_cast<int>(spec.parameters.size()), NodeCosts()));
  std::vector<at::Tensor> parameters;
  for (const StageSpec* each : {&spec, &other}) {
    for (const NamedTensor& named : each->parameters) parameters.push_back(named.tensor.detach());
  }
  const Runs runs(parameters);
  const Graph whole =
      WithParametersFrom(WholeBackward(graphs), static_cast<int>(spec.parameters.size()));
  const Data a = RandomData(spec, 5);
  const std::vector<at::Tensor> b = SavedForBackward(
      graphs, WholeBackward(graphs), RandomData(other, 6),
      Runs({parameters.end() - static_cast<std::ptrdiff_t>(other.parameters.size()),
            parameters.end()}));
  const Outcome expected = runs.Of({{&forward.forward.graph, a.inputs}, {&whole, b}}, RunSlow);
  ExpectSameBits(expected, runs.Of({{&piece.graph, Both(a.inputs, b)}}, RunFast));
}

INSTANTIATE_TEST_SUITE_P(Stages, EveryStageOverlapped,
                         ::testing::Values(MultiplexCase{"first", FirstStage},
                                           MultiplexCase{"middle", MiddleStage},
                                           MultiplexCase{"last", LastStage},
                                           MultiplexCase{"whole", WholeModel},
                                           MultiplexCase{"experts", Experts}),
                         [](const auto& info) { return info.param.name; });

// Returns the text of the nodes, one per line.
std::string Ops(const Graph& graph) {
  std::string ops;
  for (const Node& node : graph.nodes) ops += node.op.operator_name().name + "\n";
  return ops;
}

TEST(MultiplexGraphs, ComputesBetweenStartAndWait) {
  const Graph chain = ParseGraph(R"(graph chain(%0: f32[4,4]) -> (%3)
  %1: f32[4,4] = aten::tanh(%0)
  %2: f32[4,4] = penstock::all_to_all(%1, group=50)
  %3: f32[4,4] = aten::exp(%2)
)")
                          .value();
  NodeCosts costs;
  for (const Node& node : chain.nodes) costs.Set(chain, node, 1);
  const auto multiplexed = ValueOf(MultiplexGraphs(chain, chain, costs));
  EXPECT_EQ(Ops(multiplexed.graph),
            "aten::tanh\npenstock::all_to_all_start\naten::tanh\npenstock::all_to_all_start\n"
            "penstock::all_to_all_wait\naten::exp\npenstock::all_to_all_wait\naten::exp\n");
  EXPECT_EQ(multiplexed.seconds, 4);
  EXPECT_EQ(multiplexed.seconds_in_turn, 6);
}

TEST(MultiplexGraphs, JoinsGraphsOfTwoStages) {
  const Graph stage = ParseGraph(R"(graph g(%0: f32[4,4]) -> (%3)
  bound %1: f32[4,4] = parameter 0 w
  bound %2: f32[4,4] = gradient 0 w
  %3: f32[4,4] = aten::mm(%0, %1)
  aten::add_.Tensor(%2, %0)
)")
                          .value();
  const Graph other = WithParametersFrom(stage, 1);
  const auto multiplexed = ValueOf(MultiplexGraphs(stage, other, {}));
  const Runs runs({at::randn({4, 4}), at::randn({4, 4})});
  const std::vector<at::Tensor> a = {at::randn({4, 4})};
  const std::vector<at::Tensor> b = {at::randn({4, 4})};
  const Outcome outcome = runs.Of({{&multiplexed.graph, Both(a, b)}}, RunSlow);
  ExpectSameBits(runs.Of({{&stage, a}, {&other, b}}, RunSlow), outcome);
  EXPECT_TRUE(at::equal(outcome.gradients[0], a[0]));
  EXPECT_TRUE(at::equal(outcome.gradients[1], b[0]));
}

TEST(MultiplexGraphs, RejectsTwoGraphsThatDrawRandomNumbers) {
  const Graph draws = ParseGraph(R"(graph draws(%0: f32[4,4]) -> (%1)
  %1: f32[4,4] = aten::bernoulli.p(%0, p=0.5)
)")
                          .value();
  EXPECT_TRUE(Refused(MultiplexGraphs(draws, draws, {}), "random", ErrorCode::kInvalidArgument));
}

}  // namespace
}  // namespace penstock::testing
