// A compiled stage computes what autograd computes, for every way to split and run it.
#include "graph/compile.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>

#include "graph/passes/passes.h"
#include "tests/engine/graph/small_stage.h"
#include "tests/results.h"

namespace penstock::testing {
namespace {

struct CompileCase {
  const char* name;
  StageSpec (*make)();
};
void PrintTo(const CompileCase& value, std::ostream* out) { *out << value.name; }

class EveryStage : public ::testing::TestWithParam<CompileCase> {};

TEST_P(EveryStage, MatchesAutogradBitwise) {
  const StageSpec spec = GetParam().make();
  const auto graphs = ValueOf(Build(spec));
  for (const int seed : {1, 2}) {
    const Data data = RandomData(spec, seed);
    const Answer expected = RunAutograd(spec, data);
    for (const bool split : {false, true}) {
      for (const bool reference : {false, true}) {
        SCOPED_TRACE(fmt::format("split {} reference {}", split, reference));
        ExpectSame(expected, RunGraphs(spec, graphs, data, {split, reference}));
      }
    }
  }
}

TEST_P(EveryStage, RunsWithoutEachOptionalPass) {
  const StageSpec spec = GetParam().make();
  const Data data = RandomData(spec, 3);
  const Answer expected = RunAutograd(spec, data);
  for (const Pass& pass : Passes()) {
    SCOPED_TRACE(std::string(pass.name));
    const auto graphs = Build(spec, {.disabled = {std::string(pass.name)}});
    EXPECT_EQ(graphs.has_value(), !pass.must_run);
    if (graphs) ExpectSame(expected, RunGraphs(spec, *graphs, data, {}));
  }
}

TEST_P(EveryStage, AccumulatingInTheMatmulStaysClose) {
  const StageSpec spec = GetParam().make();
  const auto exact = Build(spec);
  const auto fast = Build(spec, {.exact = false});
  ASSERT_TRUE(exact && fast);
  EXPECT_LT(fast->backward.nodes.size(), exact->backward.nodes.size());
  const Data data = RandomData(spec, 4);
  const Answer a = RunGraphs(spec, *exact, data, {});
  const Answer b = RunGraphs(spec, *fast, data, {true, false});
  for (std::size_t i = 0; i < a.gradients.size(); ++i) {
    EXPECT_TRUE(at::allclose(a.gradients[i], b.gradients[i], 1e-4, 1e-5)) << i;
  }
}

TEST_P(EveryStage, SavesOnlyRootsThatBackwardReads) {
  const StageSpec spec = GetParam().make();
  const auto graphs = Build(spec);
  ASSERT_TRUE(graphs);
  for (const ValueId id : graphs->saved) {
    EXPECT_EQ(graphs->forward.Root(id), id);
    for (const Bound& bound : graphs->forward.bound) EXPECT_NE(bound.value, id);
    bool read = false;
    for (const Graph* graph : {&graphs->backward_input, &graphs->backward_weight}) {
      for (const ValueId input : graph->inputs) read = read || input == id;
    }
    EXPECT_TRUE(read) << id;
  }
}

TEST_P(EveryStage, InputGradientsDoNotDependOnWeightGradients) {
  const auto graphs = Build(GetParam().make());
  ASSERT_TRUE(graphs);
  for (const Bound& bound : graphs->backward_input.bound) {
    EXPECT_NE(bound.kind, BoundKind::kGradient);
  }
  EXPECT_EQ(graphs->backward_input.nodes.size() + graphs->backward_weight.nodes.size(),
            graphs->backward.nodes.size());
  EXPECT_EQ(graphs->backward_input.nodes.empty(), graphs->joint.input_gradients().empty());
}

INSTANTIATE_TEST_SUITE_P(Stages, EveryStage,
                         ::testing::Values(CompileCase{"first", FirstStage},
                                           CompileCase{"middle", MiddleStage},
                                           CompileCase{"last", LastStage},
                                           CompileCase{"whole", WholeModel}),
                         [](const auto& info) { return info.param.name; });

class AutocastScope {
 public:
  explicit AutocastScope(bool enabled) : before_(at::autocast::is_autocast_enabled(at::kCPU)) {
    at::autocast::set_autocast_enabled(at::kCPU, enabled);
  }
  ~AutocastScope() { at::autocast::set_autocast_enabled(at::kCPU, before_); }
  AutocastScope(const AutocastScope&) = delete;
  AutocastScope& operator=(const AutocastScope&) = delete;

 private:
  const bool before_;
};

// As position tables of models that turn autocast off for them.
TEST(CompileStage, ComputesConstantsAsTheyWereCaptured) {
  StageSpec spec = MiddleStage();
  spec.forward = [block = spec.forward](std::span<const at::Tensor> inputs) {
    const AutocastScope off(false);
    const at::Tensor column = at::arange(kSequence, at::kFloat).unsqueeze(1);
    const at::Tensor table = at::matmul(column, at::full({1, kDim}, 0.1));
    return std::vector{block(inputs)[0] + table};
  };
  const Data data = RandomData(spec, 5);
  const auto graphs = ValueOf([&] {
    const AutocastScope on(true);
    return Build(spec);
  }());
  for (const bool reference : {false, true}) {
    const Answer answer = RunGraphs(spec, graphs, data, {true, reference});
    EXPECT_TRUE(at::equal(RunAutograd(spec, data).outputs[0], answer.outputs[0]));
  }
}

TEST(CompileStage, CountsTheBytesThatAMicrobatchSaves) {
  const StageSpec spec = MiddleStage();
  const auto graphs = Build(spec);
  const auto program = CompileStage(spec, {});
  ASSERT_TRUE(graphs && program);
  std::int64_t saved = 0;
  for (const ValueId id : graphs->saved) saved += BytesOf(graphs->forward.value(id).type);
  saved += BytesOf(program->inputs[0].type);  // which backward reads
  EXPECT_EQ(program->saved_bytes, saved);
  EXPECT_GT(program->live_bytes, 0);
  EXPECT_EQ(program->outputs[0].type.sizes, (std::vector<std::int64_t>{kBatch, kSequence, kDim}));
}

TEST(CompileStage, RejectsUnknownPasses) {
  CompileOptions options = {.disabled = {"no_such_pass"}};
  EXPECT_TRUE(
      Refused(CompileStage(MiddleStage(), options), "no_such_pass", ErrorCode::kInvalidArgument));
}

TEST(CompileStage, StopsAfterAPass) {
  CompileOptions options = {.stop_after = "partition"};
  const auto graphs = Build(MiddleStage(), options);
  ASSERT_TRUE(graphs);
  EXPECT_FALSE(graphs->backward.nodes.empty());
  EXPECT_TRUE(graphs->backward_weight.name.empty());
}

}  // namespace
}  // namespace penstock::testing
