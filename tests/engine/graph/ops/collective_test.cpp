// Collectives: what capture records, and errors. op_test.cpp tests the exchanged data and the
// gradients.
#include "graph/ops/collective.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "collective/local_group.h"
#include "graph/capture/shapes_only.h"
#include "graph/ir/parse.h"
#include "tests/engine/graph/small_stage.h"
#include "tests/results.h"

namespace penstock::testing {
namespace {

constexpr int kGroup = 40;

Node NodeOf(const std::string& call) {
  return ParseGraph("graph g(%0: f32[4,4]) -> (%1)\n  %1: f32[4,4] = " + call + "\n")
      .value()
      .nodes.front();
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
      return std::ranges::count_if(
          graph.nodes, [](const Node& node) { return IsCollective(node) && !IsWait(node); });
    };
    const auto graphs = ValueOf(Build(spec));
    EXPECT_EQ(count(graphs.forward), 1);
    EXPECT_EQ(count(graphs.backward_input), 1);
    EXPECT_EQ(count(graphs.backward_weight), 0);
    const ShapesOnly shapes;
    const auto by_shapes = ValueOf(Build(spec));
    EXPECT_EQ(count(by_shapes.forward), 1);
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
  const auto graphs = ValueOf(Build(spec, {.save_budget = 0}));
  int collectives = 0;
  for (const Node& node : graphs.backward.nodes) collectives += IsCollective(node) ? 1 : 0;
  EXPECT_EQ(collectives, 1);  // of the gradient
}

}  // namespace
}  // namespace penstock::testing
