// Sharded parameters: the collectives in the captured graph, and the graphs that they move to.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <thread>

#include "collective/local_group.h"
#include "graph/ir/graph_tools.h"
#include "graph/ops/collective.h"
#include "graph/run/collective_program.h"
#include "tests/engine/graph/small_stage.h"

namespace penstock::testing {
namespace {

constexpr int kReplicas = 2;

// All parameters are sharded but the first, which another stage shares.
ParameterSharding ShardingOf(const StageSpec& spec, bool weights) {
  constexpr std::int64_t kAlign = 64;
  ParameterSharding sharding;
  sharding.replicas = kReplicas;
  sharding.weights = weights;
  std::int64_t elements = 0;
  for (std::size_t i = 0; i < spec.parameters.size(); ++i) {
    sharding.starts.push_back(i == 0 ? -1 : elements);
    if (i > 0) elements += (spec.parameters[i].tensor.numel() + kAlign - 1) / kAlign * kAlign;
  }
  sharding.shard_elements = (elements + kReplicas - 1) / kReplicas;
  return sharding;
}

StageSpec Sharded(StageSpec spec, bool weights) {
  spec.sharding = ShardingOf(spec, weights);
  return spec;
}

// The tensors in the order of the sequence.
at::Tensor Sequence(const ParameterSharding& sharding, const std::vector<at::Tensor>& tensors) {
  at::Tensor sequence = at::zeros({sharding.elements()});
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (!sharding.sharded(i) || !tensors[i].defined()) continue;
    sequence.narrow(0, sharding.starts[i], tensors[i].numel()).copy_(tensors[i].flatten());
  }
  return sequence;
}

at::Tensor ShardOf(const at::Tensor& sequence, int rank) {
  const std::int64_t size = sequence.numel() / kReplicas;
  return sequence.narrow(0, rank * size, size).clone();
}

std::vector<at::Tensor> WeightsOf(const StageSpec& spec) {
  std::vector<at::Tensor> weights;
  for (const NamedTensor& parameter : spec.parameters) weights.push_back(parameter.tensor.detach());
  return weights;
}

int CountOf(const Graph& graph, const char* op) {
  return static_cast<int>(
      std::ranges::count_if(graph.nodes, [&](const Node& node) { return IsOp(node, op); }));
}

// Calls run(rank, its end of the group of the replicas) on one thread per replica.
void OnReplicas(const std::function<void(int rank, GroupEnd& end)>& run) {
  auto ends = MakeLocalGroup(kReplicas);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kReplicas; ++rank) {
    threads.emplace_back([&, rank] {
      GroupEnd end(std::move(ends[rank]));
      run(rank, end);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

class EverySharding : public ::testing::TestWithParam<bool> {};

TEST_P(EverySharding, CapturedGraphGathersWeightsAndScattersGradients) {
  const StageSpec whole = MiddleStage();
  const StageSpec spec = Sharded(whole, GetParam());
  const ParameterSharding& sharding = *spec.sharding;
  const StageGraphs graphs = Build(spec, {.stop_after = "capture"}).value();
  const Graph& joint = graphs.joint.graph;
  EXPECT_EQ(CountOf(joint, "penstock::all_gather"), GetParam() ? 1 : 0);
  EXPECT_EQ(CountOf(joint, "penstock::reduce_scatter"), 1);

  std::vector<Data> data;
  std::vector<Answer> answers;
  at::Tensor sum = at::zeros({sharding.elements()});
  for (int rank = 0; rank < kReplicas; ++rank) {
    data.push_back(RandomData(whole, rank));
    answers.push_back(RunAutograd(whole, data.back()));
    sum += Sequence(sharding, answers.back().gradients);
  }
  OnReplicas([&](int rank, GroupEnd& end) {
    const GroupEndpoint endpoint(ParameterSharding::kGroup, end);
    GraphBinding binding = {.parameters = WeightsOf(whole)};
    binding.weight_shard = ShardOf(Sequence(sharding, binding.parameters), rank);
    std::vector<at::Tensor> inputs = data[rank].inputs;
    const std::vector<at::Tensor>& gradients = data[rank].output_gradients;
    inputs.insert(inputs.end(), gradients.begin(), gradients.end());
    const std::vector<at::Tensor> results = RunReference(joint, binding, inputs);
    EXPECT_TRUE(at::equal(results.front(), answers[rank].outputs.front()));
    EXPECT_TRUE(at::equal(results.back(), ShardOf(sum, rank)));
  });
}

TEST_P(EverySharding, OtherGraphsAreThoseOfWholeParameters) {
  for (StageSpec (*make)() : {FirstStage, MiddleStage, LastStage, WholeModel}) {
    const StageSpec whole = make();
    for (const bool exact : {true, false}) {
      CompileOptions options = {.exact = exact};
      const StageProgram expected = CompileStage(whole, options).value();
      const StageProgram program = CompileStage(Sharded(whole, GetParam()), options).value();
      EXPECT_EQ(program.saved_bytes, expected.saved_bytes);
      for (StagePiece StageProgram::*piece : {&StageProgram::forward, &StageProgram::backward_input,
                                              &StageProgram::backward_weight}) {
        const auto ops = [](const Graph& graph) {
          std::vector<std::string> names;
          for (const Node& node : graph.nodes) names.push_back(node.op.operator_name().name);
          return names;
        };
        EXPECT_EQ(ops((program.*piece).graph), ops((expected.*piece).graph));
      }
      const Data data = RandomData(whole, 1);
      const StageGraphs graphs = Build(Sharded(whole, GetParam()), options).value();
      ExpectSame(RunGraphs(whole, Build(whole, options).value(), data, {}),
                 RunGraphs(whole, graphs, data, {.split = true, .reference = false}));
      EXPECT_EQ(graphs.unshard.name, GetParam() ? "unshard" : "");
      EXPECT_EQ(graphs.reduce_grad.name, "reduce_grad");
    }
  }
}

TEST_P(EverySharding, UnshardAndReduceGradExchangeShards) {
  const StageSpec spec = Sharded(MiddleStage(), GetParam());
  const ParameterSharding& sharding = *spec.sharding;
  const StageProgram program = CompileStage(spec, {}).value();
  const at::Tensor weights = Sequence(sharding, WeightsOf(spec));
  OnReplicas([&](int rank, GroupEnd& end) {
    GraphBinding binding = {.weight_shard = ShardOf(weights, rank),
                            .unreduced_gradients = at::zeros({sharding.elements()}),
                            .gradient_shard = at::zeros({sharding.shard_elements})};
    CollectiveProgram reduce_grad(program.reduce_grad, binding, end);
    for (int step = 1; step <= 3; ++step) {
      binding.unreduced_gradients.fill_((rank + 1) * step);
      reduce_grad.Start();
      if (GetParam()) {
        CollectiveProgram unshard(program.unshard, binding, end);
        unshard.Start();
        EXPECT_TRUE(unshard.in_flight());
        EXPECT_TRUE(at::equal(unshard.Wait().front(), weights));
        EXPECT_FALSE(unshard.in_flight());
      }
      reduce_grad.Wait();
      EXPECT_EQ(binding.gradient_shard.min().item<float>(), 3.0F * static_cast<float>(step));
      EXPECT_EQ(binding.gradient_shard.max().item<float>(), 3.0F * static_cast<float>(step));
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Kept, EverySharding, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "weights" : "gradients"; });

TEST(CollectiveProgram, IsNotInFlightAfterAnError) {
  const StageProgram program = CompileStage(Sharded(MiddleStage(), true), {}).value();
  OnReplicas([&](int rank, GroupEnd& end) {
    GraphBinding binding;
    binding.weight_shard =
        at::zeros({BytesOf(program.unshard.value(program.unshard.bound.front().value).type) / 4});
    CollectiveProgram unshard(program.unshard, binding, end);
    if (rank == 1) end.group().Abort({ErrorCode::kUnavailable, "it broke"});
    unshard.Start();
    EXPECT_THROW(unshard.Wait(), std::runtime_error);
    EXPECT_FALSE(unshard.in_flight());
  });
}

}  // namespace
}  // namespace penstock::testing
