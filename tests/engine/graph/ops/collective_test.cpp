// Collectives: the exchanged data, their gradient, what capture records, and errors.
#include "graph/ops/collective.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <thread>

#include "collective/local_group.h"
#include "graph/capture/shapes_only.h"
#include "graph/compile.h"
#include "graph/ir/parse.h"
#include "tests/engine/graph/small_stage.h"

namespace penstock::testing {
namespace {

constexpr int kGroup = 40;

// Calls run(rank) on one thread per rank. All join one group.
void OnRanks(int ranks, const std::function<void(int rank)>& run) {
  auto endpoints = MakeLocalGroup(ranks);
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

// Rank r sends 2r + s rows to rank s, so some blocks are empty.
TEST(AllToAll, ExchangesUnevenBlocksWithTheirGradient) {
  constexpr int kRanks = 3;
  const auto rows = [](int from, int to) { return std::int64_t{from} * 2 + to; };
  OnRanks(kRanks, [&](int rank) {
    std::vector<std::int64_t> sent, received;
    std::vector<at::Tensor> blocks, expected, weights;
    for (int other = 0; other < kRanks; ++other) {
      sent.push_back(rows(rank, other));
      received.push_back(rows(other, rank));
      blocks.push_back(at::full({sent.back(), 2}, 10.0 * rank + other));
      expected.push_back(at::full({received.back(), 2}, 10.0 * other + rank));
      weights.push_back(at::full({sent.back(), 2}, 1.0 * other));
    }
    const at::Tensor x = at::cat(blocks).requires_grad_(true);
    const at::Tensor result = AllToAll(x, sent, received, kGroup);
    EXPECT_TRUE(at::equal(result, at::cat(expected)));
    // The weight of a row is the number of the rank that receives it.
    const at::Tensor gradient = torch::autograd::grad({(result * rank).sum()}, {x}).front();
    EXPECT_TRUE(at::equal(gradient, at::cat(weights)));
  });
}

// The sum over the ranks of sum(weight * all_gather(x)), and the same for reduce_scatter.
TEST(AllGather, AndReduceScatterAreGradientsOfEachOther) {
  constexpr int kRanks = 3;
  std::vector<at::Tensor> xs, weights, wholes, block_weights;
  for (int rank = 0; rank < kRanks; ++rank) {
    xs.push_back(at::randn({2, 4}));
    weights.push_back(at::randn({2 * kRanks, 4}));
    wholes.push_back(at::randn({2 * kRanks, 4}));
    block_weights.push_back(at::randn({2, 4}));
  }
  const auto sum_of_block = [](const std::vector<at::Tensor>& all, int rank) {
    at::Tensor sum = all[0].narrow(0, 2 * rank, 2);
    for (std::size_t i = 1; i < all.size(); ++i) sum = sum + all[i].narrow(0, 2 * rank, 2);
    return sum;
  };
  OnRanks(kRanks, [&](int rank) {
    const at::Tensor x = xs[rank].clone().requires_grad_(true);
    const at::Tensor gathered = AllGather(x, kRanks, kGroup);
    EXPECT_TRUE(at::equal(gathered, at::cat(xs)));
    const at::Tensor of_gather =
        torch::autograd::grad({(gathered * weights[rank]).sum()}, {x}).front();
    EXPECT_TRUE(at::equal(of_gather, sum_of_block(weights, rank)));

    const at::Tensor whole = wholes[rank].clone().requires_grad_(true);
    const at::Tensor scattered = ReduceScatter(whole, kRanks, kGroup);
    EXPECT_TRUE(at::equal(scattered, sum_of_block(wholes, rank)));
    const at::Tensor of_scatter =
        torch::autograd::grad({(scattered * block_weights[rank]).sum()}, {whole}).front();
    EXPECT_TRUE(at::equal(of_scatter, at::cat(block_weights)));
  });
}

TEST(AllReduce, IsItsOwnGradient) {
  std::vector<at::Tensor> xs, weights;
  for (int rank = 0; rank < 2; ++rank) {
    xs.push_back(at::randn({3, 5}));
    weights.push_back(at::randn({3, 5}));
  }
  OnRanks(2, [&](int rank) {
    const at::Tensor x = xs[rank].clone().requires_grad_(true);
    const at::Tensor sum = AllReduce(x, kGroup);
    EXPECT_TRUE(at::equal(sum, xs[0] + xs[1]));
    const at::Tensor gradient = torch::autograd::grad({(sum * weights[rank]).sum()}, {x}).front();
    EXPECT_TRUE(at::equal(gradient, weights[0] + weights[1]));
    const at::Tensor whole_number = at::full({2}, rank + 1, at::kLong);
    EXPECT_TRUE(at::equal(AllReduce(whole_number, kGroup), at::full({2}, 3, at::kLong)));
  });
}

TEST(Broadcast, SendsTheTensorOfTheRoot) {
  OnRanks(3, [&](int rank) {
    for (const int root : {2, 0}) {
      const at::Tensor x = at::full({4, 2}, 1.0 * rank);
      EXPECT_TRUE(at::equal(Broadcast(x, root, kGroup), at::full({4, 2}, 1.0 * root)));
      EXPECT_TRUE(at::equal(x, at::full({4, 2}, 1.0 * rank)));
    }
  });
}

TEST(Broadcast, AndReduceAreGradientsOfEachOther) {
  constexpr int kRanks = 3, kRoot = 1;
  std::vector<at::Tensor> xs, weights;
  for (int rank = 0; rank < kRanks; ++rank) {
    xs.push_back(at::randn({4, 2}));
    weights.push_back(at::randn({4, 2}));
  }
  // Added in the order of the ranks.
  const auto sum_at_root = [](const std::vector<at::Tensor>& all, int rank) {
    return rank == kRoot ? all[0] + all[1] + all[2] : at::zeros({4, 2});
  };
  OnRanks(kRanks, [&](int rank) {
    const at::Tensor x = xs[rank].clone().requires_grad_(true);
    const at::Tensor loss = (Broadcast(x, kRoot, kGroup) * weights[rank]).sum();
    const at::Tensor of_broadcast = torch::autograd::grad({loss}, {x}).front();
    EXPECT_TRUE(at::equal(of_broadcast, sum_at_root(weights, rank)));

    const at::Tensor sum = Reduce(x, kRoot, kGroup);
    EXPECT_TRUE(at::equal(sum, sum_at_root(xs, rank)));
    const at::Tensor of_reduce = torch::autograd::grad({(sum * weights[rank]).sum()}, {x}).front();
    EXPECT_TRUE(at::equal(of_reduce, weights[kRoot]));
  });
}

// The calls of all collectives on a 4x4 matrix, for graphs.
const std::vector<std::string>& CollectiveCalls() {
  static const std::vector<std::string> calls = {
      "penstock::all_gather(%0, ranks=2, group=40)",
      "penstock::reduce_scatter(%0, ranks=2, group=40)",
      "penstock::all_reduce(%0, group=40)",
      "penstock::all_to_all(%0, group=40)",
      "penstock::all_to_all_uneven(%0, sent=[1,3], received=[1,3], group=40)",
      "penstock::broadcast(%0, root=1, group=40)",
      "penstock::reduce(%0, root=1, group=40)"};
  return calls;
}

// Rank 1's uneven counts, which must fit rank 0's: 1 to itself, 3 to and from the other.
torch::jit::Stack ArgumentsOf(const Node& node, const at::Tensor& x, int rank) {
  torch::jit::Stack stack = {x};
  for (std::size_t i = 1; i < node.arguments.size(); ++i) {
    c10::IValue argument = std::get<c10::IValue>(node.arguments[i]);
    if (argument.isIntList() && rank == 1) argument = std::vector<std::int64_t>{3, 1};
    stack.push_back(std::move(argument));
  }
  return stack;
}

at::Tensor CallBoxed(const c10::OperatorHandle& op, torch::jit::Stack stack) {
  op.callBoxed(stack);
  return stack.back().toTensor();
}

// Every rank starts all collectives, and waits for them in an order of its own.
TEST(SplitOf, StartsAndWaitsGiveTheResultsOfTheWholeOps) {
  OnRanks(2, [](int rank) {
    std::vector<at::Tensor> expected, sent, tickets;
    std::vector<Node> nodes;
    for (const std::string& call : CollectiveCalls()) {
      nodes.push_back(NodeOf(call));
      EXPECT_TRUE(IsCollective(nodes.back()));
      EXPECT_EQ(GroupOf(nodes.back()), kGroup);
      sent.push_back(at::arange(16).reshape({4, 4}) + (100.0 * rank));
      expected.push_back(CallBoxed(nodes.back().op, ArgumentsOf(nodes.back(), sent.back(), rank)));
    }
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      tickets.push_back(CallBoxed(SplitOf(nodes[i])->start, ArgumentsOf(nodes[i], sent[i], rank)));
    }
    for (std::size_t turn = 0; turn < nodes.size(); ++turn) {
      const std::size_t i = rank == 0 ? turn : nodes.size() - 1 - turn;
      torch::jit::Stack stack = ArgumentsOf(nodes[i], sent[i], rank);
      stack.insert(stack.begin(), tickets[i]);
      EXPECT_TRUE(at::equal(CallBoxed(SplitOf(nodes[i])->wait, stack), expected[i])) << turn;
    }
  });
}

// A single rank, which has not joined the group, finds the shapes of the results.
TEST(DisableCollectivesGuard, ResultsAreZerosOfTheirShapes) {
  const DisableCollectivesGuard guard;
  const at::Tensor x = at::randn({6, 2});
  EXPECT_TRUE(at::equal(AllGather(x, 3, 1234), at::zeros({18, 2})));
  EXPECT_TRUE(at::equal(ReduceScatter(x, 3, 1234), at::zeros({2, 2})));
  EXPECT_TRUE(at::equal(AllReduce(x, 1234), at::zeros({6, 2})));
  EXPECT_TRUE(at::equal(AllToAll(x, {2, 4}, {1, 2}, 1234), at::zeros({3, 2})));
  EXPECT_TRUE(at::equal(Broadcast(x, 0, 1234), at::zeros({6, 2})));
  EXPECT_TRUE(at::equal(Reduce(x, 0, 1234), at::zeros({6, 2})));
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
  auto endpoints = MakeLocalGroup(2, {"pair", std::chrono::milliseconds(20)});
  const GroupEndpoint end(kGroup, std::move(endpoints[0]));
  contains(message([] {
             AllToAll(at::zeros({3, 2}), kGroup);
           }),
           "2 ranks cannot split 3 rows evenly");
  contains(message([] {
             AllToAll(at::zeros({2, 2}), kGroup);
           }),
           "all-to-all 0 of group pair: rank 0 waited 20 ms for rank 1");
  contains(message([&] { const GroupEndpoint again(kGroup, std::move(endpoints[1])); }),
           "has already joined group 40");
  contains(message([] {
             torch::jit::Stack stack = {at::zeros({1}, at::kLong) + 5, at::zeros({2, 2}),
                                        std::int64_t{kGroup}};
             SplitOf(NodeOf("penstock::all_to_all(%0, group=40)"))->wait.callBoxed(stack);
           }),
           "has no collective 5 in flight");
}

TEST(Collectives, AreCapturedByASingleRank) {
  const std::function<at::Tensor(const at::Tensor&)> collectives[] = {
      [](const at::Tensor& x) { return AllToAll(x, 1234); },  // a group that no thread joined
      [](const at::Tensor& x) {
        return AllToAll(x, {3, 1}, {2, 0}, 1234);
      },
      [](const at::Tensor& x) { return AllGather(x, 3, 1234); },
      [](const at::Tensor& x) { return ReduceScatter(x, 2, 1234); },
      [](const at::Tensor& x) { return AllReduce(x, 1234); },
      [](const at::Tensor& x) { return Broadcast(x, 1, 1234); },
      [](const at::Tensor& x) { return Reduce(x, 1, 1234); }};
  for (const auto& collective : collectives) {
    StageSpec spec;
    const at::Tensor weight = at::randn({4, 4}).requires_grad_(true);
    spec.parameters = {{"weight", weight}};
    spec.inputs = {at::zeros({4, 4})};
    spec.input_gradients = {0};
    spec.forward = [=](std::span<const at::Tensor> inputs) {
      return std::vector{collective(inputs[0].mm(weight)).tanh()};
    };
    const auto count = [](const Graph& graph) {
      return std::count_if(graph.nodes.begin(), graph.nodes.end(), IsCollective);
    };
    const auto graphs = Build(spec);
    ASSERT_TRUE(graphs) << graphs.error().line();
    EXPECT_EQ(count(graphs->forward), 1);
    EXPECT_EQ(count(graphs->backward_input), 1);
    EXPECT_EQ(count(graphs->backward_weight), 0);
    const ShapesOnly shapes;
    const auto by_shapes = Build(spec);
    ASSERT_TRUE(by_shapes) << by_shapes.error().line();
    EXPECT_EQ(count(by_shapes->forward), 1);
  }
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
  ASSERT_TRUE(graphs) << graphs.error().line();
  int collectives = 0;
  for (const Node& node : graphs->backward.nodes) collectives += IsCollective(node) ? 1 : 0;
  EXPECT_EQ(collectives, 1);  // of the gradient
}

}  // namespace
}  // namespace penstock::testing
