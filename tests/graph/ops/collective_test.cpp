// Collectives: the exchanged data, their gradient, what capture records, and errors.
#include "graph/ops/collective.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <thread>

#include "graph/capture/shapes_only.h"
#include "graph/compile.h"
#include "graph/ir/parse.h"
#include "graph/ops/local_collective.h"
#include "tests/graph/small_stage.h"

namespace penstock::testing {
namespace {

constexpr int kGroup = 40;

// Calls run(rank) on one thread per rank. All join one group.
void OnRanks(int ranks, const std::function<void(int rank)>& run, LinkSpeed speed = {}) {
  auto endpoints = MakeLocalGroup(ranks, speed);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      const GroupEndpoint end(kGroup, std::move(endpoints[rank]));
      run(rank);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

Node NodeOf(const std::string& call) {
  return ParseGraph("graph g(%0: f32[4,4]) -> (%1)\n  %1: f32[4,4] = " + call + "\n")
      .value()
      .nodes.front();
}

TEST(AllToAll, ExchangesBlocks) {
  for (const int ranks : {1, 2, 3}) {
    const auto row = [&](int from, int block) {
      return at::arange(4) + (100.0 * from + 10.0 * block);
    };
    OnRanks(ranks, [&](int rank) {
      std::vector<at::Tensor> sent, expected;
      for (int other = 0; other < ranks; ++other) {
        sent.push_back(row(rank, other));
        expected.push_back(row(other, rank));
      }
      for (int again = 0; again < 3; ++again) {
        EXPECT_TRUE(at::equal(AllToAll(at::stack(sent), kGroup), at::stack(expected)));
      }
    });
  }
}

// The loss is the sum over the ranks of weight * all_to_all(x), so the gradient of x on each rank
// is all_to_all of the weights.
TEST(AllToAll, HasTheGradientOfTheExchange) {
  constexpr int kRanks = 2;
  std::vector<at::Tensor> weights;
  for (int rank = 0; rank < kRanks; ++rank) weights.push_back(at::randn({4, 3}));
  OnRanks(kRanks, [&](int rank) {
    const at::Tensor x = at::randn({3, 4}).requires_grad_(true);
    // A transposed view is sent as a contiguous copy, and its gradient has the layout of the view.
    const at::Tensor loss = (AllToAll(x.t(), kGroup) * weights[rank]).sum();
    const at::Tensor gradient = torch::autograd::grad({loss}, {x}).front();
    std::vector<at::Tensor> expected;
    for (const at::Tensor& weight : weights) expected.push_back(weight.narrow(0, rank * 2, 2));
    EXPECT_TRUE(at::equal(gradient, at::cat(expected).t()));
  });
}

TEST(AllToAll, TakesTheTimeOfItsLink) {
  // Three tensors of 48 bytes at 4800 bytes per second, one after another.
  LinkSpeed speed;
  speed.latency = 0.005;
  speed.bytes_per_second = 4800;
  OnRanks(
      1,
      [&](int) {
        const auto start = std::chrono::steady_clock::now();
        const auto begin = SplitOf(NodeOf("penstock::all_to_all(%0, group=40)"))->start;
        const auto end = SplitOf(NodeOf("penstock::all_to_all(%0, group=40)"))->wait;
        std::vector<at::Tensor> sent, tickets;
        for (int i = 0; i < 3; ++i) {
          sent.push_back(at::randn({3, 4}));
          torch::jit::Stack stack = {sent.back(), std::int64_t{kGroup}};
          begin.callBoxed(stack);
          tickets.push_back(stack.back().toTensor());
        }
        for (int i = 2; i >= 0; --i) {  // in any order
          torch::jit::Stack stack = {tickets[i], sent[i], std::int64_t{kGroup}};
          end.callBoxed(stack);
          EXPECT_TRUE(at::equal(stack.back().toTensor(), sent[i]));
        }
        const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
        EXPECT_GE(took.count(), 0.035);
      },
      speed);
}

TEST(AllToAll, ReportsErrors) {
  const auto message = [](const std::function<void()>& run) -> std::string {
    try {
      run();
    } catch (const std::exception& error) {
      return error.what();
    }
    return "nothing";
  };
  const auto contains = [](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  contains(message([] { AllToAll(at::zeros({2, 2}), 77); }), "group 77");
  auto endpoints = MakeLocalGroup(2, {}, std::chrono::milliseconds(20));
  const GroupEndpoint end(kGroup, std::move(endpoints[0]));
  contains(message([] {
             AllToAll(at::zeros({3, 2}), kGroup);
           }),
           "2 ranks cannot split 3 rows evenly");
  contains(message([] {
             AllToAll(at::zeros({2, 2}), kGroup);
           }),
           "waited 20 ms for the other ranks");
  contains(message([&] { const GroupEndpoint again(kGroup, std::move(endpoints[1])); }),
           "has already joined group 40");
  contains(message([] {
             torch::jit::Stack stack = {at::zeros({1}, at::kLong) + 5, at::zeros({2, 2}),
                                        std::int64_t{kGroup}};
             SplitOf(NodeOf("penstock::all_to_all(%0, group=40)"))->wait.callBoxed(stack);
           }),
           "was not started");
}

TEST(AllToAll, IsCapturedByASingleRank) {
  StageSpec spec;
  const at::Tensor weight = at::randn({4, 4}).requires_grad_(true);
  spec.parameters = {{"weight", weight}};
  spec.inputs = {at::zeros({4, 4})};
  spec.input_gradients = {0};
  spec.forward = [=](std::span<const at::Tensor> inputs) {
    return std::vector{
        AllToAll(inputs[0].mm(weight), 1234).tanh()};  // a group that no thread joined
  };
  const auto count = [](const Graph& graph) {
    return std::count_if(graph.nodes.begin(), graph.nodes.end(), IsCollective);
  };
  const auto graphs = Build(spec);
  ASSERT_TRUE(graphs) << graphs.error().message;
  EXPECT_EQ(count(graphs->forward), 1);
  EXPECT_EQ(count(graphs->backward_input), 1);
  EXPECT_EQ(count(graphs->backward_weight), 0);
  const ShapesOnly shapes;
  const auto by_shapes = Build(spec);
  ASSERT_TRUE(by_shapes) << by_shapes.error().message;
  EXPECT_EQ(count(by_shapes->forward), 1);
}

TEST(AllToAll, IsNeverRecomputed) {
  StageSpec spec;
  const at::Tensor weight = at::randn({4, 4}).requires_grad_(true);
  spec.parameters = {{"weight", weight}};
  spec.inputs = {at::zeros({4, 4})};
  spec.forward = [=](std::span<const at::Tensor> inputs) {
    return std::vector{(AllToAll(inputs[0].mm(weight), 1234).tanh() * weight).exp()};
  };
  CompileOptions options;
  options.save_budget = 0;
  const auto graphs = Build(spec, options);
  ASSERT_TRUE(graphs) << graphs.error().message;
  int collectives = 0;
  for (const Node& node : graphs->backward.nodes) collectives += IsCollective(node) ? 1 : 0;
  EXPECT_EQ(collectives, 1);  // of the gradient
}

}  // namespace
}  // namespace penstock::testing
