#include "tests/engine/graph/small_stage.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>

#include "base/index.h"

namespace penstock::testing {
namespace {

constexpr std::uint64_t kSeed = 42;  // of random ops

// One thread, so that sums have one order and results can be compared bitwise.
class OneThread : public ::testing::Environment {
 public:
  void SetUp() override { at::set_num_threads(1); }
};
const auto* const kOneThread = ::testing::AddGlobalTestEnvironment(new OneThread);

c10::Device device_of_stages = at::kCPU;
at::Tensor OnDevice(const at::Tensor& tensor) { return tensor.to(device_of_stages); }

struct Block {
  at::Tensor norm1, wq, wk, wv, wo, norm2, gate, up, down;

  Block() {
    const auto weight = [](std::int64_t rows, std::int64_t columns) {
      return OnDevice(at::randn({rows, columns}) * 0.3).requires_grad_(true);
    };
    norm1 = OnDevice(at::randn({kDim})).requires_grad_(true);
    norm2 = OnDevice(at::randn({kDim})).requires_grad_(true);
    for (at::Tensor* matrix : {&wq, &wk, &wv, &wo}) *matrix = weight(kDim, kDim);
    gate = weight(3 * kDim, kDim);
    up = weight(3 * kDim, kDim);
    down = weight(kDim, 3 * kDim);
  }

  at::Tensor Forward(const at::Tensor& input) const {
    const auto heads = [&](const at::Tensor& states) {
      return states.view({kBatch, kSequence, 2, kDim / 2}).transpose(1, 2);
    };
    const at::Tensor x = at::rms_norm(input, {kDim}, norm1, 1e-5);
    const at::Tensor attended = at::scaled_dot_product_attention(
        heads(at::linear(x, wq)), heads(at::linear(x, wk)), heads(at::linear(x, wv)), {}, 0.0,
        /*is_causal=*/true);
    const at::Tensor h =
        input + at::linear(attended.transpose(1, 2).reshape({kBatch, kSequence, kDim}), wo);
    const at::Tensor y = at::rms_norm(h, {kDim}, norm2, 1e-5);
    return h + at::linear(at::silu(at::linear(y, gate)) * at::linear(y, up), down);
  }

  void AddTo(std::vector<NamedTensor>& parameters) const {
    for (const auto& [name, tensor] :
         {std::pair("norm1", norm1), std::pair("wq", wq), std::pair("wk", wk), std::pair("wv", wv),
          std::pair("wo", wo), std::pair("norm2", norm2), std::pair("gate", gate),
          std::pair("up", up), std::pair("down", down)}) {
      parameters.push_back({name, tensor});
    }
  }
};

at::Tensor Tokens() { return OnDevice(at::zeros({kBatch, kSequence}, at::kLong)); }
at::Tensor Hidden() { return OnDevice(at::zeros({kBatch, kSequence, kDim})); }

at::Tensor Loss(const at::Tensor& hidden, const at::Tensor& head, const at::Tensor& targets) {
  return at::cross_entropy_loss(at::linear(hidden, head).view({-1, kVocabulary}),
                                targets.view({-1}));
}

}  // namespace

void SetDeviceOfStages(c10::Device device) { device_of_stages = device; }

StageSpec FirstStage() {
  const Block block;
  const at::Tensor table = OnDevice(at::randn({kVocabulary, kDim})).requires_grad_(true);
  StageSpec spec = {.parameters = {{"table", table}}};
  block.AddTo(spec.parameters);
  spec.inputs = {Tokens()};
  spec.forward = [=](std::span<const at::Tensor> inputs) {
    return std::vector{block.Forward(at::embedding(table, inputs[0]))};
  };
  return spec;
}

StageSpec MiddleStage() {
  const Block block;
  StageSpec spec;
  block.AddTo(spec.parameters);
  spec.inputs = {Hidden()};
  spec.input_gradients = {0};
  spec.forward = [=](std::span<const at::Tensor> inputs) {
    return std::vector{block.Forward(inputs[0])};
  };
  return spec;
}

StageSpec LastStage() {
  const Block block;
  const at::Tensor head = OnDevice(at::randn({kVocabulary, kDim})).requires_grad_(true);
  StageSpec spec;
  block.AddTo(spec.parameters);
  spec.parameters.push_back({"head", head});
  spec.inputs = {Hidden(), Tokens()};
  spec.input_gradients = {0};
  spec.output_gradient = 0.25;
  spec.forward = [=](std::span<const at::Tensor> inputs) {
    return std::vector{Loss(block.Forward(inputs[0]), head, inputs[1])};
  };
  return spec;
}

StageSpec WholeModel() {
  StageSpec spec = FirstStage();
  const at::Tensor head = OnDevice(at::randn({kVocabulary, kDim})).requires_grad_(true);
  spec.parameters.push_back({"head", head});
  spec.inputs.push_back(Tokens());
  spec.output_gradient = 0.25;
  spec.forward = [below = spec.forward, head](std::span<const at::Tensor> inputs) {
    return std::vector{Loss(below(inputs)[0], head, inputs[1])};
  };
  return spec;
}

namespace {

// Returns the inputs, with those whose gradients are computed as new leaves.
std::vector<at::Tensor> WithGradients(const StageSpec& spec, std::vector<at::Tensor> inputs) {
  for (const int input : spec.input_gradients) {
    at::Tensor& tensor = inputs.at(Index(input));
    tensor = tensor.detach().clone().requires_grad_(true);
  }
  return inputs;
}

}  // namespace

Data RandomData(const StageSpec& spec, int seed) {
  at::manual_seed(static_cast<std::uint64_t>(seed));
  Data data;
  for (const at::Tensor& input : spec.inputs) {
    data.inputs.push_back(input.is_floating_point() ? at::randn_like(input)
                                                    : at::randint_like(input, kVocabulary));
  }
  if (spec.output_gradient) return data;
  for (const at::Tensor& output : spec.forward(WithGradients(spec, data.inputs))) {
    data.output_gradients.push_back(
        output.requires_grad() ? at::randn(output.sizes()).to(output.scalar_type()) : at::Tensor());
  }
  return data;
}

Answer RunAutograd(const StageSpec& spec, const Data& data) {
  const std::vector<at::Tensor> inputs = WithGradients(spec, data.inputs);
  std::vector<at::Tensor> wanted;
  for (const NamedTensor& parameter : spec.parameters) wanted.push_back(parameter.tensor);
  for (const int input : spec.input_gradients) {
    wanted.push_back(inputs.at(Index(input)));
  }
  Answer answer;
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  generator.set_current_seed(kSeed);
  answer.outputs = spec.forward(inputs);
  std::vector<at::Tensor> from, starts;
  for (std::size_t i = 0; i < answer.outputs.size(); ++i) {
    if (!answer.outputs[i].requires_grad()) continue;
    from.push_back(answer.outputs[i]);
    starts.push_back(spec.output_gradient ? at::scalar_tensor(*spec.output_gradient)
                                          : data.output_gradients.at(i));
  }
  answer.gradients = torch::autograd::grad(from, wanted, starts, false, false, true);
  const auto of_inputs =
      answer.gradients.begin() + static_cast<std::ptrdiff_t>(spec.parameters.size());
  answer.input_gradients.assign(of_inputs, answer.gradients.end());
  answer.gradients.erase(of_inputs, answer.gradients.end());
  return answer;
}

namespace {

// Runs pieces one after another. They share the values of a microbatch.
class Pieces {
 public:
  Pieces(const StageGraphs& graphs, GraphBinding binding, bool reference)
      : values_(graphs.backward.values.size()),
        binding_(std::move(binding)),
        reference_(reference) {}

  void Set(ValueId id, at::Tensor tensor) { values_.at(Index(id)) = std::move(tensor); }

  // Returns the first `leaving` outputs and stores the others.
  std::vector<at::Tensor> Run(const Graph& graph, std::size_t leaving) {
    std::vector<at::Tensor> inputs;
    for (const ValueId id : graph.inputs) inputs.push_back(values_.at(Index(id)));
    std::vector<at::Tensor> outputs(graph.outputs.size());
    if (reference_) {
      outputs = RunReference(graph, binding_, inputs);
    } else {
      GraphProgram program(graph, binding_);
      std::vector<at::Tensor> again = inputs;
      program.Run(inputs, outputs);
      // A second run checks that the first left no state, unless that would accumulate gradients
      // twice.
      bool pure = true;
      for (const Bound& bound : graph.bound) pure = pure && bound.kind != BoundKind::kGradient;
      if (!pure) return StoreOutputs(graph, std::move(outputs), leaving);
      binding_.generator.set_current_seed(kSeed);
      program.Run(again, outputs);
    }
    return StoreOutputs(graph, std::move(outputs), leaving);
  }

 private:
  std::vector<at::Tensor> StoreOutputs(const Graph& graph, std::vector<at::Tensor> outputs,
                                       std::size_t leaving) {
    for (std::size_t i = leaving; i < outputs.size(); ++i) Set(graph.outputs[i], outputs[i]);
    outputs.resize(leaving);
    return outputs;
  }

  std::vector<at::Tensor> values_;
  GraphBinding binding_;
  bool reference_;
};

}  // namespace

Answer RunGraphs(const StageSpec& spec, const StageGraphs& graphs, const Data& data,
                 const Runner& runner) {
  GraphBinding binding = {.device = graphs.joint.device};
  for (const NamedTensor& parameter : spec.parameters) {
    binding.parameters.push_back(parameter.tensor.detach());
    // 16-bit gradients are accumulated in fp32.
    const c10::ScalarType dtype = parameter.tensor.scalar_type();
    binding.gradients.push_back(
        at::zeros_like(parameter.tensor, c10::isReducedFloatingType(dtype) ? at::kFloat : dtype)
            .detach());
  }
  binding.generator = at::detail::createCPUGenerator(kSeed);
  Answer answer = {.gradients = binding.gradients};
  Pieces pieces(graphs, std::move(binding), runner.reference);
  for (std::size_t i = 0; i < data.inputs.size(); ++i) {
    pieces.Set(graphs.forward.inputs.at(i), data.inputs[i]);
  }
  const JointGraph& joint = graphs.joint;
  answer.outputs = pieces.Run(graphs.forward, joint.outputs().size());
  for (std::size_t i = 0; i < joint.output_gradients.size(); ++i) {
    const ValueId gradient = joint.output_gradients[i];
    if (gradient != kNoValue) pieces.Set(gradient, data.output_gradients.at(i));
  }
  const std::size_t leaving = joint.input_gradients().size();
  if (runner.split) {
    answer.input_gradients = pieces.Run(graphs.backward_input, leaving);
    pieces.Run(graphs.backward_weight, 0);
  } else {
    answer.input_gradients = pieces.Run(graphs.backward, leaving);
  }
  return answer;
}

Result<StageGraphs> Build(const StageSpec& spec, const CompileOptions& options) {
  PENSTOCK_TRY(JointGraph joint, CaptureStage(spec));
  return BuildStageGraphs(std::move(joint), options);
}

// Returns the largest difference, relative to the largest number.
static double LargestDistance(const at::Tensor& expected, const at::Tensor& actual) {
  if (expected.numel() == 0) return expected.sizes() == actual.sizes() ? 0 : HUGE_VAL;
  const at::Tensor wide = expected.to(at::kDouble);
  const double most = std::max(wide.abs().max().item<double>(), 1e-30);
  return (wide - actual.to(at::kDouble)).abs().max().item<double>() / most;
}

void ExpectNear(const Answer& expected, const Answer& actual, double bound) {
  const auto near = [&](const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
    ASSERT_EQ(a.size(), b.size());
    for (std::size_t i = 0; i < a.size(); ++i) EXPECT_LT(LargestDistance(a[i], b[i]), bound) << i;
  };
  near(expected.outputs, actual.outputs);
  near(expected.input_gradients, actual.input_gradients);
  near(expected.gradients, actual.gradients);
}

void ExpectSame(const Answer& expected, const Answer& actual) {
  const auto same = [](const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b,
                       const char* what) {
    ASSERT_EQ(a.size(), b.size()) << what;
    for (std::size_t i = 0; i < a.size(); ++i) {
      ASSERT_TRUE(b[i].defined()) << what << ' ' << i;
      EXPECT_TRUE(at::equal(a[i].defined() ? a[i] : at::zeros_like(b[i]), b[i]))
          << what << ' ' << i;
    }
  };
  same(expected.outputs, actual.outputs, "output");
  same(expected.input_gradients, actual.input_gradients, "input gradient");
  same(expected.gradients, actual.gradients, "gradient");
}

}  // namespace penstock::testing
