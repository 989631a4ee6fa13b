// Graphs that compute while their collectives move data give the same bits as whole collectives on
// threads, in any order of actions, and gathering again saves memory.
#include "graph/passes/split_collectives.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <random>

#include "base/index.h"
#include "graph/count_collectives.h"
#include "graph/ops/collective.h"
#include "graph/overlap_stages.h"
#include "tests/engine/graph/ops/on_ranks.h"
#include "tests/engine/graph/small_stage.h"
#include "tests/results.h"
#include "train/stage/bound_pair.h"
#include "train/stage/bound_program.h"

namespace penstock::testing {
namespace {

constexpr int kRanks = 2;
constexpr int kTensorRanks = 70;  // the group
constexpr std::int64_t kOwnTokens = 6, kUnsplitWidth = 4;

// Two layers whose tokens and matrices ranks divide: each gathers tokens, and scatters sums.
StageSpec DividedLayers() {
  StageSpec spec;
  const auto weight = [&](std::int64_t rows, std::int64_t columns) {
    const at::Tensor made = (at::randn({rows, columns}) * 0.3).requires_grad_(true);
    spec.parameters.push_back({fmt::format("w{}", spec.parameters.size()), made});
    return made;
  };
  std::vector<std::pair<at::Tensor, at::Tensor>> layers;
  for (int layer = 0; layer < 2; ++layer) {
    const at::Tensor up = weight(kUnsplitWidth, 2 * kUnsplitWidth);
    layers.emplace_back(up, weight(2 * kUnsplitWidth, kUnsplitWidth));
  }
  spec.inputs = {at::randn({kOwnTokens, kUnsplitWidth})};
  spec.input_gradients = {0};
  spec.forward = [layers](std::span<const at::Tensor> inputs) {
    at::Tensor x = inputs[0];
    for (const auto& [up, down] : layers) {
      const at::Tensor all = AllGather(x.tanh(), kRanks, kTensorRanks);
      x = x + ReduceScatter(all.mm(up).tanh().mm(down), kRanks, kTensorRanks);
    }
    return std::vector{x};
  };
  return spec;
}

StageProgram Compiled(const CompileOptions& options) {
  at::manual_seed(1);
  return CompileStage(DividedLayers(), options).value();
}

// The order of a microbatch's actions is F, B or F, I, W, or a pair of one's F and another's B.
struct TestedAction {
  enum class Kind { kForward, kBackward, kInput, kWeight, kPair } kind;
  int microbatch = 0;
  int other = 0;  // whose backward a pair runs
};

// Runs actions of one rank, and returns all outputs, input gradients and parameter gradients.
class Actions {
 public:
  // Without `hides`, collectives block.
  Actions(const StageProgram& program, int rank, bool hides)
      : hides_(hides), bound_(program, BindingOf(rank), NodeCosts(), nullptr) {}

  std::vector<at::Tensor> Run(const std::vector<TestedAction>& actions, int microbatches) {
    slots_.resize(Index(microbatches));
    std::vector<at::Tensor> left;
    const auto keep = [&](std::span<at::Tensor> leaving) {
      for (at::Tensor& each : leaving) left.push_back(std::move(each));
    };
    for (const TestedAction& action : actions) {
      std::vector<at::Tensor>& slots = slots_[Index(action.microbatch)];
      switch (action.kind) {
        case TestedAction::Kind::kForward:
          SetInput(action.microbatch);
          keep(bound_.forward.Run(slots));
          break;
        case TestedAction::Kind::kBackward:
          SetGradient(action.microbatch);
          keep(hides_ ? bound_.interleaved_input->Run(slots) : bound_.backward_input.Run(slots));
          hides_ ? bound_.interleaved_weight->Run(slots) : bound_.backward_weight.Run(slots);
          break;
        case TestedAction::Kind::kInput:
          SetGradient(action.microbatch);
          keep(bound_.backward_input.Run(slots));
          break;
        case TestedAction::Kind::kWeight:
          bound_.backward_weight.Run(slots);
          break;
        case TestedAction::Kind::kPair:
          RunPair(action, keep);
      }
    }
    for (const std::vector<at::Tensor>& slots : slots_) {
      for (const at::Tensor& each : slots) EXPECT_FALSE(each.defined());  // all were read
    }
    left.insert(left.end(), binding_.gradients.begin(), binding_.gradients.end());
    return left;
  }

 private:
  const GraphBinding& BindingOf(int rank) {
    rank_ = rank;
    at::manual_seed(1);
    for (const NamedTensor& each : DividedLayers().parameters) {
      binding_.parameters.push_back(each.tensor.detach() + 0.1 * rank);
      binding_.gradients.push_back(at::zeros_like(binding_.parameters.back()));
    }
    return binding_;
  }
  at::Tensor Draw(int number) const {
    at::Generator generator = at::detail::createCPUGenerator(Index(100 * number + rank_));
    return at::randn({kOwnTokens, kUnsplitWidth}, generator);
  }
  void SetInput(int microbatch) {
    auto& slots = slots_[Index(microbatch)];
    slots.resize(Index(bound_.program.slots));
    slots[Index(bound_.program.inputs.front().slot)] = Draw(2 * microbatch);
  }
  void SetGradient(int microbatch) {
    slots_[Index(microbatch)][Index(bound_.gradient_slots.front())] = Draw(2 * microbatch + 1);
  }
  template <class Keep>
  void RunPair(const TestedAction& action, const Keep& keep) {
    SetInput(action.microbatch);
    SetGradient(action.other);
    auto& forward = slots_[Index(action.microbatch)];
    auto& backward = slots_[Index(action.other)];
    if (!hides_) {
      keep(bound_.forward.Run(forward));
      keep(bound_.backward_input.Run(backward));
      bound_.backward_weight.Run(backward);
      return;
    }
    if (!pair_) pair_.emplace(bound_, binding_, bound_, binding_, NodeCosts());
    const BoundPair::Leaving leaving = pair_->Run(forward, backward);
    keep(leaving.outputs);
    keep(leaving.input_gradients);
  }

  bool hides_;
  int rank_ = 0;
  GraphBinding binding_;
  BoundProgram bound_;
  std::optional<BoundPair> pair_;
  std::vector<std::vector<at::Tensor>> slots_;  // by microbatch
};

// Returns what each rank computes.
std::vector<std::vector<at::Tensor>> OnThreads(const StageProgram& program, bool hides,
                                               const std::vector<TestedAction>& actions,
                                               int microbatches) {
  std::vector<std::unique_ptr<Actions>> ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.push_back(std::make_unique<Actions>(program, rank, hides));
  }
  std::vector<std::vector<at::Tensor>> results(kRanks);
  OnRanks(kRanks, kTensorRanks, [&](int rank) {
    at::set_num_threads(1);
    results[Index(rank)] = ranks[Index(rank)]->Run(actions, microbatches);
  });
  return results;
}

// Returns a valid order of the actions of all microbatches.
std::vector<TestedAction> RandomActions(std::mt19937& random, int microbatches) {
  std::vector<TestedAction> actions;
  std::vector<int> after_forward, after_input;
  const auto take = [&](std::vector<int>& from) {
    const auto at = from.begin() + static_cast<std::ptrdiff_t>(random() % from.size());
    const int taken = *at;
    from.erase(at);
    return taken;
  };
  int next = 0;
  while (next < microbatches || !after_forward.empty() || !after_input.empty()) {
    const unsigned kind = random() % 5;
    if (kind == 0 && next < microbatches) {
      actions.push_back({TestedAction::Kind::kForward, next});
      after_forward.push_back(next++);
    } else if (kind == 1 && !after_forward.empty()) {
      actions.push_back({TestedAction::Kind::kBackward, take(after_forward)});
    } else if (kind == 2 && !after_forward.empty()) {
      after_input.push_back(take(after_forward));
      actions.push_back({TestedAction::Kind::kInput, after_input.back()});
    } else if (kind == 3 && !after_input.empty()) {
      actions.push_back({TestedAction::Kind::kWeight, take(after_input)});
    } else if (kind == 4 && next < microbatches && !after_forward.empty()) {
      const int other = take(after_forward);
      actions.push_back({TestedAction::Kind::kPair, next, other});
      after_forward.push_back(next++);
    }
  }
  return actions;
}

void ExpectSameBits(const std::vector<std::vector<at::Tensor>>& expected,
                    const std::vector<std::vector<at::Tensor>>& actual) {
  for (std::size_t rank = 0; rank < expected.size(); ++rank) {
    ASSERT_EQ(expected[rank].size(), actual[rank].size());
    for (std::size_t i = 0; i < expected[rank].size(); ++i) {
      EXPECT_TRUE(at::equal(expected[rank][i], actual[rank][i])) << rank << ' ' << i;
    }
  }
}

class RandomOrders : public ::testing::TestWithParam<int> {};

TEST_P(RandomOrders, GiveTheBitsOfBlockingCollectives) {
  constexpr int kMicrobatches = 5;
  std::mt19937 random(static_cast<unsigned>(GetParam()));
  const std::vector<TestedAction> actions = RandomActions(random, kMicrobatches);
  for (const bool exact : {true, false}) {
    CompileOptions options = {.exact = exact, .disabled = {"split_collectives"}};
    const auto expected = OnThreads(Compiled(options), false, actions, kMicrobatches);
    options.disabled.clear();
    for (const bool gather_again : {false, true}) {
      options.gather_again = gather_again;
      ExpectSameBits(expected, OnThreads(Compiled(options), true, actions, kMicrobatches));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomOrders, ::testing::Range(0, 8));

bool IsProduct(const Node& node) {
  const std::string& name = node.op.operator_name().name;
  return name == "aten::mm" || name == "aten::addmm_";
}

// Returns the number of matrix products while a collective is in flight.
int HiddenProducts(const Graph& graph) {
  int in_flight = 0, products = 0;
  for (const Node& node : graph.nodes) {
    if (WholeOf(node)) ++in_flight;
    if (IsWait(node)) --in_flight;
    products += in_flight > 0 && IsProduct(node);
  }
  return products;
}

TEST(SplitCollectives, BComputesWeightGradientsWhileItWaits) {
  const StageProgram program = Compiled({});
  EXPECT_EQ(HiddenProducts(program.backward_input.graph), 0);  // each depends on the one before
  const auto pieces = InterleaveBackward(program, NodeCosts());
  ASSERT_TRUE(pieces);
  // The second layer's weight gradients run while it scatters, and the first layer's likewise.
  EXPECT_EQ(HiddenProducts(pieces->input.graph), 4);
  EXPECT_EQ(std::ranges::count_if(pieces->weight.graph.nodes, IsProduct), 0);
  EXPECT_EQ(std::ranges::count_if(pieces->input.graph.nodes, IsCollective), 8);
}

TEST(SplitCollectives, BIsNotInterleavedWithoutCollectives) {
  EXPECT_FALSE(InterleaveBackward(CompileStage(MiddleStage(), {}).value(), NodeCosts()));
}

TEST(SplitCollectives, WholeCollectivesAreTheInverse) {
  CompileOptions options;
  const StageProgram split = Compiled(options);
  options.disabled = {"split_collectives"};
  const StageProgram whole = Compiled(options);
  EXPECT_EQ(CountCollectives(split), CountCollectives(whole));
  const Graph again = WithWholeCollectives(split.forward.graph);
  EXPECT_EQ(again.nodes.size(), whole.forward.graph.nodes.size());
  EXPECT_TRUE(std::ranges::none_of(again.nodes, IsWait));
}

// F saves the ranks' own tokens, and W has two calls more.
TEST(GatherAgain, SavesOwnTokensAndGathersInW) {
  constexpr std::int64_t kBytes = kOwnTokens * kUnsplitWidth * 4;  // of a rank's tokens
  const auto gathers = [](std::int64_t calls) {
    return CollectiveCount{"all_gather", kTensorRanks, calls, calls * kRanks * kBytes};
  };
  const CollectiveCount scatters{"reduce_scatter", kTensorRanks, 2, 2 * kRanks * kBytes};
  const StageProgram saves = Compiled({});
  EXPECT_EQ(CountCollectives(saves),
            (CollectivesOfStage{{gathers(2), scatters}, {gathers(2), scatters}, {}}));
  const StageProgram again = Compiled({.gather_again = true});
  EXPECT_EQ(CountCollectives(again),
            (CollectivesOfStage{{gathers(2), scatters}, {gathers(2), scatters}, {gathers(2)}}));
  // The derivative of tanh reads the ranks' own tokens anyway.
  EXPECT_EQ(saves.saved_bytes - again.saved_bytes, 2 * kRanks * kBytes);
  EXPECT_EQ(saves.live_bytes - again.live_bytes, 2 * (kRanks - 1) * kBytes);
}

TEST(GatherAgain, CombinesWithRecomputedValues) {
  const CompileOptions least = {.save_budget = 0};
  CompileOptions again = least;
  again.gather_again = true;
  EXPECT_LT(Compiled(again).saved_bytes, Compiled(least).saved_bytes);
}

}  // namespace
}  // namespace penstock::testing
