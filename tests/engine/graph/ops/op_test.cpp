// Every op computes, on the tested device, the values and gradients of plain ATen, and its shapes
// without data. tests/graph/CMakeLists.txt also runs these tests on other devices and as on a
// processor with AVX2 only.
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/AutogradState.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <set>

#include "graph/capture/shapes_only.h"
#include "graph/ops/bf16_kernels.h"
#include "tests/engine/graph/ops/on_ranks.h"
#include "tests/engine/graph/ops/op_rows.h"
#include "tests/engine/train/tested_device.h"

namespace penstock::testing {
namespace {

using at::Tensor;
using c10::IValue;

c10::OperatorHandle Find(std::string_view op) {
  const auto dot = op.find('.');
  const std::string overload(dot == op.npos ? "" : op.substr(dot + 1));
  return c10::Dispatcher::singleton().findSchemaOrThrow(std::string(op.substr(0, dot)).c_str(),
                                                        overload.c_str());
}

// Copies the arguments to the device. Those that the op does not write to may be shared.
Arguments Moved(const c10::OperatorHandle& op, const Arguments& arguments, c10::Device device) {
  const auto move = [&](const Tensor& tensor, bool copy) {
    return tensor.to(tensor.options().device(device), /*non_blocking=*/false, copy);
  };
  Arguments moved;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const c10::AliasInfo* alias = op.schema().arguments()[i].alias_info();
    if (arguments[i].isTensor()) {
      moved.emplace_back(move(arguments[i].toTensor(), alias != nullptr && alias->isWrite()));
    } else if (arguments[i].isTensorList()) {
      Tensors list;
      for (const Tensor& each : arguments[i].toTensorVector()) list.push_back(move(each, false));
      moved.emplace_back(list);
    } else {
      moved.push_back(arguments[i]);
    }
  }
  return moved;
}

// Returns the results and what else the call has written to.
Tensors Call(const c10::OperatorHandle& op, Arguments arguments) {
  Arguments stack = arguments;
  op.callBoxed(stack);
  Tensors results;
  for (const IValue& value : stack) {
    const Tensors each = value.isTensor() ? Tensors{value.toTensor()} : value.toTensorVector();
    results.insert(results.end(), each.begin(), each.end());
  }
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const c10::AliasInfo* alias = op.schema().arguments()[i].alias_info();
    if (alias == nullptr || !alias->isWrite() || arguments[i].is(stack.back())) continue;
    results.push_back(arguments[i].toTensor());
  }
  return results;
}

void ExpectClose(const Tensors& expected, const Tensors& actual, double tolerance) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    ASSERT_EQ(actual[i].scalar_type(), expected[i].scalar_type()) << "tensor " << i;
    ASSERT_EQ(actual[i].sizes(), expected[i].sizes()) << "tensor " << i;
    if (at::equal(actual[i], expected[i])) continue;
    const Tensor wide = expected[i].to(at::kDouble);
    const Tensor difference = (actual[i].to(at::kDouble) - wide).abs().max() / wide.abs().max();
    EXPECT_LE(difference.item<double>(), tolerance) << "tensor " << i;
  }
}

// Makes the arguments of all ranks that have gradients leaves.
Tensors MakeLeaves(std::vector<Arguments>& ranks, const std::vector<std::size_t>& differentiable) {
  Tensors leaves;
  for (Arguments& arguments : ranks) {
    for (const std::size_t i : differentiable) {
      leaves.push_back(arguments[i].toTensor().detach().requires_grad_());
      arguments[i] = leaves.back();
    }
  }
  return leaves;
}

// Returns the results that have gradients.
Tensors WithGradients(const Tensors& results) {
  Tensors found;
  std::ranges::copy_if(results, std::back_inserter(found), &Tensor::requires_grad);
  return found;
}

// Returns the gradients of the sum of weight * result over all results; zeros for unused leaves.
Tensors GradientsOf(const Tensors& results, const Tensors& leaves, const Tensors& weights) {
  Tensors gradients = torch::autograd::grad(results, leaves, weights, {}, false, true);
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    if (!gradients[i].defined()) gradients[i] = at::zeros_like(leaves[i]);
  }
  return gradients;
}

class Op : public ::testing::TestWithParam<OpRow> {
 protected:
  void SetUp() override {
    if (device_.is_cuda() && row_.no_cuda != nullptr) GTEST_SKIP() << row_.no_cuda;
    if (std::string_view(row_.op).starts_with("aten::")) kernels_.emplace();
  }

  // Calls call(rank) for each rank on the tested device. Returns the results on the CPU, by rank.
  std::vector<Tensors> OnDevice(std::size_t ranks,
                                const std::function<Tensors(std::size_t)>& call) const {
    std::vector<Tensors> results(ranks);
    const auto run = [&](int rank) {
      // Backward runs on this thread, which has joined the group.
      c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
      for (const Tensor& result : call(Index(rank))) {
        results[Index(rank)].push_back(result.detach().cpu());
      }
    };
    OnRanks(static_cast<int>(ranks), kOpGroup, run, device_);
    return results;
  }
  std::vector<Tensors> Results(const std::vector<Arguments>& ranks) const {
    return OnDevice(ranks.size(),
                    [&](std::size_t rank) { return Call(op_, Moved(op_, ranks[rank], device_)); });
  }

  const OpRow& row_ = GetParam();
  const c10::OperatorHandle op_ = Find(row_.op);
  const c10::Device device_ = OpenDevice(TestedDevice()).value();

 private:
  std::optional<Bf16Kernels> kernels_;
};

TEST_P(Op, ComputesWhatAtenDoes) {
  for (const std::vector<Arguments>& ranks : row_.draw()) {
    const std::vector<Tensors> expected = row_.reference(ranks);
    for (int again = 0; again < 2; ++again) {
      const std::vector<Tensors> results = Results(ranks);
      for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
        ExpectClose(expected[rank], results[rank], row_.tolerance);
      }
    }
  }
}

// The gradients of the sum of the losses of all ranks.
TEST_P(Op, HasTheGradientsOfAten) {
  if (row_.no_gradient != nullptr) GTEST_SKIP() << row_.no_gradient;
  for (std::vector<Arguments> ranks : row_.draw()) {
    if (!ranks[0][row_.differentiable.front()].toTensor().is_floating_point()) continue;
    const std::vector<Arguments> drawn = ranks;
    const Tensors leaves = MakeLeaves(ranks, row_.differentiable);
    Tensors results, weights;
    std::vector<Tensors> weights_of_rank;
    for (const Tensors& of_rank : row_.reference(ranks)) {
      Tensors& own = weights_of_rank.emplace_back();
      for (const Tensor& result : WithGradients(of_rank)) {
        results.push_back(result);
        own.push_back(WholeNumbers(result.sizes().vec(), result.scalar_type(), 3));
        weights.push_back(own.back());
      }
    }
    const Tensors expected = GradientsOf(results, leaves, weights);
    const std::vector<Tensors> gradients = OnDevice(ranks.size(), [&](std::size_t rank) {
      std::vector<Arguments> own = {Moved(op_, drawn[rank], device_)};
      const Tensors own_leaves = MakeLeaves(own, row_.differentiable);
      const Tensors made = row_.call ? Tensors{row_.call(own[0])} : Call(op_, own[0]);
      Tensors moved;
      for (const Tensor& weight : weights_of_rank[rank]) moved.push_back(weight.to(device_));
      return GradientsOf(WithGradients(made), own_leaves, moved);
    });
    Tensors found;
    for (const Tensors& of_rank : gradients)
      found.insert(found.end(), of_rank.begin(), of_rank.end());
    ExpectClose(expected, found, row_.tolerance);
  }
}

// Capture finds the shapes on a single rank, which has not joined the group of a collective.
TEST_P(Op, HasTheShapesOfItsResultsWithoutData) {
  if (row_.no_shapes != nullptr) GTEST_SKIP() << row_.no_shapes;
  for (const std::vector<Arguments>& ranks : row_.draw()) {
    const std::vector<Tensors> results = Results(ranks);
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      const Arguments arguments = Moved(op_, ranks[rank], at::kCPU);
      const ShapesOnly shapes;
      const Tensors found = Call(op_, arguments);
      ASSERT_EQ(found.size(), results[rank].size());
      for (std::size_t i = 0; i < found.size(); ++i) {
        EXPECT_EQ(found[i].scalar_type(), results[rank][i].scalar_type());
        EXPECT_EQ(found[i].sizes(), results[rank][i].sizes());
        EXPECT_EQ(found[i].strides(), results[rank][i].strides());
      }
    }
  }
}

std::string NameOfRow(const ::testing::TestParamInfo<OpRow>& info) {
  std::string name = std::string(info.param.op) + info.param.variant;
  if (name.starts_with("penstock::")) name.erase(0, std::string_view("penstock::").size());
  std::ranges::replace_if(
      name, [](char c) { return c == ':' || c == '.'; }, '_');
  return name;
}
INSTANTIATE_TEST_SUITE_P(Rows, Op, ::testing::ValuesIn(OpRows()), NameOfRow);

Node NodeOf(const c10::OperatorHandle& op, const Arguments& arguments) {
  Node node{.op = op, .arguments = {}, .outputs = {}};
  for (const IValue& argument : arguments) node.arguments.emplace_back(argument);
  return node;
}

// The rows of collectives, with their arguments for two ranks.
std::vector<std::pair<OpRow, std::vector<Arguments>>> CollectivesOfTwoRanks() {
  std::vector<std::pair<OpRow, std::vector<Arguments>>> found;
  for (const OpRow& row : OpRows()) {
    for (const std::vector<Arguments>& ranks : row.draw()) {
      if (ranks.size() == 2) found.emplace_back(row, ranks);
    }
  }
  return found;
}

// Every rank starts all collectives, and waits for them in an order of its own.
TEST(Ops, StartsAndWaitsGiveTheResultsOfTheWholeCollectives) {
  const auto collectives = CollectivesOfTwoRanks();
  ASSERT_FALSE(collectives.empty());
  const c10::Device device = OpenDevice(TestedDevice()).value();
  const auto run = [&](int rank) {
    std::vector<SplitCollective> halves;
    std::vector<Arguments> waits;
    for (const auto& [row, ranks] : collectives) {
      const c10::OperatorHandle op = Find(row.op);
      Arguments arguments = Moved(op, ranks[Index(rank)], device);
      const Node node = NodeOf(op, arguments);
      EXPECT_TRUE(IsCollective(node));
      EXPECT_EQ(GroupOf(node), kOpGroup);
      halves.push_back(SplitOf(node).value());
      arguments[0] = arguments[0].toTensor().contiguous();
      const Tensor ticket = Call(halves.back().start, arguments).front();
      arguments.insert(arguments.begin(), ticket);
      waits.push_back(std::move(arguments));
    }
    for (std::size_t turn = 0; turn < waits.size(); ++turn) {
      const std::size_t i = rank == 0 ? turn : waits.size() - 1 - turn;
      const Tensor result = Call(halves[i].wait, waits[i]).front().cpu();
      const auto& [row, ranks] = collectives[i];
      EXPECT_TRUE(at::equal(result, row.reference(ranks)[Index(rank)].front())) << row.op;
    }
  };
  OnRanks(2, kOpGroup, run, device);
}

// Capture runs collectives on a single rank, which has not joined the group.
TEST(Ops, DisabledCollectivesReturnZerosOfTheirShapes) {
  const DisableCollectivesGuard guard;
  for (const auto& [row, ranks] : CollectivesOfTwoRanks()) {
    const Tensor whole = row.reference(ranks)[1].front();
    const Tensor zeros = Call(Find(row.op), ranks[1]).front();
    EXPECT_TRUE(at::equal(zeros, at::zeros_like(row.no_shapes == nullptr ? whole : zeros)))
        << row.op;
  }
}

// A collective's row also checks its two halves. python/tests/torch_mesh tests the ones of c10d,
// which need its groups.
TEST(Ops, EachHasARow) {
  const Bf16Kernels kernels;
  std::set<std::string> rows;
  for (const OpRow& row : OpRows()) {
    rows.insert(row.op);
    if (!SplitOf(NodeOf(Find(row.op), {}))) continue;
    for (const char* half : {"_start", "_wait"}) rows.insert(std::string(row.op) + half);
  }
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    const auto op = c10::Dispatcher::singleton().findSchema(name);
    // Each registration has the file that made it.
    const bool is_own = name.name.starts_with("penstock::") ||
                        (op && op->dumpState().find("graph/ops/") != std::string::npos);
    if (!is_own || name.name.starts_with("penstock::c10d_")) continue;
    EXPECT_TRUE(rows.erase(c10::toString(name))) << name << " has no row in op_rows.cpp";
  }
  EXPECT_TRUE(rows.empty()) << *rows.begin() << " has a row, but is not registered";
}

}  // namespace
}  // namespace penstock::testing
