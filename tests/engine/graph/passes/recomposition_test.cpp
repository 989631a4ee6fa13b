// Checks every pass by recomposition: after each pass, the reference interpreter runs the current
// graphs of the stage one after another, and the test compares the results with the captured joint
// graph's. Covers every model in fp32 and bf16, and compares bitwise with `exact`.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "graph/ir/print.h"
#include "graph/passes/multiplex.h"
#include "graph/passes/passes.h"
#include "model/model.h"
#include "tests/engine/graph/small_stage.h"

namespace penstock::testing {
namespace {

constexpr std::uint64_t kRandomSeed = 17;
constexpr std::int64_t kSamples = 2, kTokens = 36, kWidth = 8, kWords = 12;

ModelConfig Config(std::string_view model) {
  ModelConfig config = {
      .name = std::string(model), .vocabulary = kWords, .dim = kWidth, .layers = 3};
  config.options["heads"] = "2";
  config.sequence = kTokens;
  config.options["dropout"] = "0.25";
  if (model == "deepseek_v3") config.options["predictor"] = "1";
  return config;
}

// Returns a stage of one layer: the first (0), a middle one (1) or the last (2).
StageSpec SpecOf(std::string_view model, int index, c10::ScalarType dtype) {
  const ModelConfig config = Config(model);
  const LayerRange range = SplitLayers(config.layers, 3).value()[index];
  const auto full = BuildStage(config, range).value();
  const auto stage = CastStage(*full, config, range, dtype).value();
  stage->train();
  StageSpec spec;
  for (const auto& each : stage->named_parameters()) {
    spec.parameters.push_back({each.key(), each.value()});
  }
  const at::Tensor tokens = at::zeros({kSamples, kTokens}, at::kLong);
  spec.inputs = {index == 0 ? tokens : at::zeros({kSamples, kTokens, kWidth}, dtype)};
  if (index > 0) spec.input_gradients = {0};
  spec.forward = [stage](std::span<const at::Tensor> inputs) {
    return stage->ForwardAll(inputs.first(1));
  };
  if (index < 2) return spec;
  spec.inputs.push_back(tokens);
  spec.output_gradient = 0.25;
  spec.forward = [stage](std::span<const at::Tensor> inputs) {
    return std::vector{stage->Loss(stage->ForwardAll(inputs.first(1)), inputs[1])};
  };
  return spec;
}

// Code that no model contains: computed constants, and the same expression twice.
StageSpec Wasteful(c10::ScalarType dtype) {
  StageSpec spec;
  const at::Tensor weight = at::randn({kTokens, kWidth}).to(dtype).requires_grad_(true);
  spec.parameters = {{"weight", weight}};
  spec.inputs = {at::zeros({kTokens, kWidth}, dtype)};
  spec.input_gradients = {0};
  spec.forward = [=](std::span<const at::Tensor> inputs) {
    const at::Tensor &x = inputs[0], table = at::full({kWidth}, 0.5, dtype).cumsum(0);
    return std::vector{(x * weight).mul(x * weight) * table + at::silu(x * weight)};
  };
  return spec;
}

// Runs the graphs of a stage after some of the passes as one function.
class Recomposed {
 public:
  Recomposed(const StageSpec& spec, const StageGraphs& graphs, const Data& data)
      : graphs_(graphs), data_(data) {
    for (const NamedTensor& parameter : spec.parameters) {
      binding_.parameters.push_back(parameter.tensor.detach());
      binding_.gradients.push_back(
          at::zeros_like(parameter.tensor, parameter.tensor.options().dtype(at::kFloat)).detach());
    }
    binding_.generator = at::detail::createCPUGenerator(kRandomSeed);
  }

  Answer Run() {
    const JointGraph& joint = graphs_.joint;
    const bool partitioned = !graphs_.forward.name.empty();
    const Graph& forward = partitioned ? graphs_.forward : joint.graph;
    for (std::size_t i = 0; i < data_.inputs.size(); ++i) {
      values_[forward.inputs.at(i)] = data_.inputs[i];
    }
    for (std::size_t i = 0; i < joint.output_gradients.size(); ++i) {
      const ValueId gradient = joint.output_gradients[i];
      if (gradient != kNoValue) values_[gradient] = data_.output_gradients.at(i);
    }
    Answer answer;
    const std::size_t parameters = joint.parameters.size();
    if (!partitioned) {
      std::vector<at::Tensor> all = Run(joint.graph, joint.graph.outputs.size());
      answer.outputs = Take(all, joint.outputs().size());
      answer.gradients = Take(all, parameters);
      answer.input_gradients = std::move(all);
      return Finished(std::move(answer));
    }
    answer.outputs = Run(forward, joint.outputs().size());
    if (!graphs_.overlapped.name.empty()) return Finished(Overlapped());
    const std::size_t inputs = joint.input_gradients().size();
    if (!graphs_.backward_input.name.empty()) {
      answer.input_gradients = Run(graphs_.backward_input, inputs);
      Run(graphs_.backward_weight, 0);
    } else {
      // Parameter gradients are outputs until a pass accumulates them.
      answer.gradients = Run(graphs_.backward, graphs_.backward.outputs.size());
      answer.input_gradients = Take(answer.gradients, inputs);
    }
    return Finished(std::move(answer));
  }

 private:
  // Runs the forward of one microbatch with the backward of an equal one.
  Answer Overlapped() {
    std::vector<ValueId> ids = graphs_.forward.inputs;
    const std::vector<ValueId> more = WholeBackward(graphs_).inputs;
    ids.insert(ids.end(), more.begin(), more.end());
    std::vector<at::Tensor> inputs;
    for (const ValueId id : ids) inputs.push_back(values_.at(id));
    binding_.generator.set_current_seed(kRandomSeed);
    std::vector<at::Tensor> all = RunReference(graphs_.overlapped, binding_, inputs);
    Answer answer = {.outputs = Take(all, graphs_.joint.outputs().size())};
    Take(all, graphs_.saved.size());
    answer.input_gradients = std::move(all);
    return answer;
  }

  static std::vector<at::Tensor> Take(std::vector<at::Tensor>& from, std::size_t count) {
    const auto end = from.begin() + static_cast<std::ptrdiff_t>(count);
    std::vector<at::Tensor> taken(from.begin(), end);
    from.erase(from.begin(), end);
    return taken;
  }

  // Returns the first `leaving` outputs and stores the others.
  std::vector<at::Tensor> Run(const Graph& graph, std::size_t leaving) {
    std::vector<at::Tensor> inputs;
    for (const ValueId id : graph.inputs) inputs.push_back(values_.at(id));
    std::vector<at::Tensor> outputs = RunReference(graph, binding_, inputs);
    for (std::size_t i = leaving; i < outputs.size(); ++i) values_[graph.outputs[i]] = outputs[i];
    outputs.resize(leaving);
    return outputs;
  }

  Answer Finished(Answer answer) const {
    if (answer.gradients.empty()) answer.gradients = binding_.gradients;
    for (std::size_t i = 0; i < answer.gradients.size(); ++i) {
      at::Tensor& gradient = answer.gradients[i];
      gradient = gradient.defined() ? gradient.to(at::kFloat) : binding_.gradients[i];
    }
    return answer;
  }

  const StageGraphs& graphs_;
  const Data& data_;
  GraphBinding binding_;
  std::map<ValueId, at::Tensor> values_;
};

std::string TextOf(StageGraphs& graphs) {
  std::string text;
  for (const Graph* graph : AllGraphs(graphs)) text += PrintGraph(*graph);
  return text;
}

struct Way {
  const char* name;
  bool exact;
  std::int64_t save_budget;
};
constexpr Way kWays[] = {
    {"exact", true, kSaveAll}, {"exact_saving_least", true, 0}, {"inexact_saving_least", false, 0}};

bool HasRouter(const StageSpec& spec) {
  return std::ranges::any_of(spec.parameters, [](const NamedTensor& parameter) {
    return parameter.name.find("router") != std::string::npos;
  });
}

// Adds the names of the passes that change a graph to `changed`.
void RunPassByPass(const StageSpec& spec, const Way& way, std::set<std::string_view>& changed) {
  CompileOptions options = {.exact = way.exact,
                            .fuse = way.save_budget == 0,
                            .save_budget = way.save_budget,
                            .save_budget_for_weight = way.save_budget,
                            .overlapped = true};
  StageGraphs graphs;
  graphs.joint = CaptureStage(spec).value();
  const bool half = spec.parameters[0].tensor.scalar_type() == at::kBFloat16;
  // Rounding to bf16 in another place changes which experts some tokens choose.
  if (!way.exact && half && HasRouter(spec)) return;
  const double bound = half ? 5e-2 : 2e-5;
  for (const int seed : {1, 2}) {
    const Data data = RandomData(spec, seed);
    StageGraphs now = graphs;
    const Answer expected = Recomposed(spec, now, data).Run();
    std::string before = TextOf(now);
    for (const Pass& pass : Passes()) {
      SCOPED_TRACE(fmt::format("after {}", pass.name));
      const Status status = pass.run(now, options);
      ASSERT_TRUE(status) << status.error().line();
      std::string after = TextOf(now);
      if (after == before) continue;
      changed.insert(pass.name);
      before = std::move(after);
      const Answer actual = Recomposed(spec, now, data).Run();
      way.exact ? ExpectSame(expected, actual) : ExpectNear(expected, actual, bound);
      if (::testing::Test::HasFailure()) return;
    }
  }
}

void RunPassByPass(const StageSpec& spec, std::set<std::string_view>& changed) {
  for (const Way& way : kWays) {
    SCOPED_TRACE(way.name);
    if (!::testing::Test::HasFailure()) RunPassByPass(spec, way, changed);
  }
}

TEST(Recomposition, EveryPassPreservesTheResults) {
  std::set<std::string_view> changed;
  for (const std::string_view model : ModelNames()) {
    for (const auto dtype : {at::kFloat, at::kBFloat16}) {
      for (int index = 0; index < 3; ++index) {
        SCOPED_TRACE(fmt::format("{} {} stage {}", model, toString(dtype), index));
        RunPassByPass(SpecOf(model, index, dtype), changed);
      }
    }
  }
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    SCOPED_TRACE(fmt::format("wasteful {}", toString(dtype)));
    RunPassByPass(Wasteful(dtype), changed);
  }
  // Other files test passes that need larger matmuls (passes_test.cpp), shards (fsdp_test.cpp) or
  // collectives (split_collectives_test.cpp; sum_once: Python's test_overlap.py).
  constexpr std::string_view kElsewhere[] = {"matmul_by_onednn",          "split_fsdp_prefetch",
                                             "split_fsdp_reduce_scatter", "gather_again",
                                             "split_collectives",         "sum_once"};
  for (const Pass& pass : Passes()) {
    if (std::ranges::find(kElsewhere, pass.name) != std::end(kElsewhere)) continue;
    EXPECT_TRUE(changed.contains(pass.name)) << pass.name;
  }
}

}  // namespace
}  // namespace penstock::testing
