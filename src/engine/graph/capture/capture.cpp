#include "graph/capture/capture.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/enum_tag.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/AutogradState.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/library.h>

#include <algorithm>

#include "base/exception_line.h"
#include "graph/capture/capture_error.h"
#include "graph/capture/decompositions.h"
#include "graph/capture/python_dispatch.h"
#include "graph/capture/recorder.h"
#include "graph/capture/refused_ops.h"
#include "graph/capture/shapes_only.h"
#include "graph/capture/shard_parameters.h"
#include "graph/ops/bf16_kernels.h"
#include "graph/ops/collective.h"
#include "graph/ops/random_ops.h"

namespace penstock {
namespace {

using torch::jit::Stack;

// Runs before any thread calls an op, so that autograd and graphs use the same kernels.
[[maybe_unused]] const bool kInstalled = (InstallBf16Kernels(), true);

thread_local Recorder* recording = nullptr;

c10::DispatchKeySet Below(c10::DispatchKeySet keys) {
  return keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, c10::DispatchKey::Fake);
}

// randn_like and similar ops take no generator, but the ops that they call do.
bool IsDecomposed(const c10::OperatorHandle& op) {
  return op.hasTag(at::Tag::nondeterministic_seeded) && !TakesGenerator(op.schema()) &&
         op.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd);
}

// Called for every op of a capturing thread, below autograd and before its kernel.
void Fallback(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
  if (recording != nullptr) {
    if (InfersShapes(op, *stack)) {
      const c10::impl::ExcludeDispatchKeyGuard below(c10::DispatchKey::Fake);
      op.redispatchBoxed(Below(keys), stack);
      return;
    }
    if (IsOfSubclass(op, Below(keys), *stack)) return CallSubclass(op, stack);
    if (IsDecomposed(op) || IsComposite(op, Below(keys))) {
      op.redispatchBoxed(Below(keys), stack);
      return;
    }
  }
  // Ops that the kernel itself calls are part of this op.
  const c10::impl::ExcludeDispatchKeyGuard below(c10::DispatchKey::Fake);
  if (recording == nullptr) {
    RunKernel(op, Below(keys), stack);
  } else {
    recording->Run(op, Below(keys), stack);
  }
}

TORCH_LIBRARY_IMPL(_, Fake, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&Fallback>());
}

class CaptureScope {
 public:
  explicit CaptureScope(Recorder& recorder)
      : include_(c10::DispatchKeySet({c10::DispatchKey::Fake, kDecompositions})) {
    recording = &recorder;
  }
  ~CaptureScope() { recording = nullptr; }
  CaptureScope(const CaptureScope&) = delete;
  CaptureScope& operator=(const CaptureScope&) = delete;

 private:
  c10::impl::IncludeDispatchKeyGuard include_;
  DisableCollectivesGuard no_collectives_;
};

// Devices other than the CPU have threads of their own for backward, which do not record.
class OneAutogradThread {
 public:
  OneAutogradThread() { State().set_multithreading_enabled(false); }
  ~OneAutogradThread() { State().set_multithreading_enabled(before_); }
  OneAutogradThread(const OneAutogradThread&) = delete;
  OneAutogradThread& operator=(const OneAutogradThread&) = delete;

 private:
  static c10::AutogradState& State() { return c10::AutogradState::get_tls_state(); }
  const bool before_ = State().get_multithreading_enabled();
};

// Restores the state of the process's generator, which capture advances by running random ops.
class GeneratorStateGuard {
 public:
  GeneratorStateGuard() {
    const std::lock_guard lock(generator_.mutex());
    state_ = generator_.get_state();
  }
  ~GeneratorStateGuard() {
    const std::lock_guard lock(generator_.mutex());
    generator_.set_state(state_);
  }
  GeneratorStateGuard(const GeneratorStateGuard&) = delete;
  GeneratorStateGuard& operator=(const GeneratorStateGuard&) = delete;

 private:
  at::Generator generator_ = at::detail::getDefaultCPUGenerator();
  at::Tensor state_;
};

// Runs forward and backward of the stage under capture.
class Tracer {
 public:
  Tracer(const StageSpec& spec, Recorder& recorder) : spec_(spec), recorder_(recorder) {}

  JointGraph Trace() {
    c10::InferenceMode no_inference(false);
    at::AutoGradMode with_gradients(true);
    JointGraph joint;
    BindInputs();
    joint.parameters = parameters_;
    joint.differentiated_inputs = spec_.input_gradients;
    joint.kept_inputs = spec_.kept_inputs;
    const std::vector<at::Tensor> results = Outputs();
    joint.updated_buffers = UpdatedBuffers();
    for (std::size_t i = spec_.kept_outputs_from.value_or(results.size()); i < results.size();
         ++i) {
      joint.kept_outputs.push_back(static_cast<int>(i));
    }
    const std::vector<at::Tensor> starts = BindOutputGradients(results);
    joint.output_gradients = output_gradients_;
    std::vector<ValueId> outputs;
    for (const at::Tensor& result : results) outputs.push_back(recorder_.Use(result));
    for (const at::Tensor& buffer : joint.updated_buffers) {
      outputs.push_back(recorder_.Use(buffer));
      joint.output_gradients.push_back(kNoValue);
    }
    recorder_.set_phase(Phase::kBackward);
    for (const at::Tensor& gradient : Gradients(results, starts)) {
      // As a constant, it would be the gradient of the example.
      if (gradient.defined() && gradient.has_storage() && !recorder_.Knows(gradient)) {
        throw CaptureError("autograd computes a gradient outside of the thread that captures it");
      }
      outputs.push_back(gradient.defined() ? recorder_.Use(gradient) : kNoValue);
    }
    recorder_.RejectForeign(outputs);
    joint.graph = std::move(recorder_.graph());
    joint.graph.name = "joint";
    joint.graph.outputs = std::move(outputs);
    return joint;
  }

 private:
  // Returns the earlier parameter that is the same tensor, or null.
  const Bound* TiedTo(const at::Tensor& tensor) const {
    for (const Bound& bound : parameters_) {
      if (bound.tensor.is_alias_of(tensor) && TypeOf(bound.tensor) == TypeOf(tensor) &&
          bound.tensor.storage_offset() == tensor.storage_offset()) {
        return &bound;
      }
    }
    return nullptr;
  }

  void BindInputs() {
    int index = 0;
    for (const NamedTensor& parameter : spec_.parameters) {
      Bound bound{kNoValue, BoundKind::kParameter, index++, parameter.name,
                  parameter.tensor.detach()};
      const Bound* const tied = TiedTo(parameter.tensor);
      if (tied == nullptr) {
        recorder_.DefineBound(parameter.tensor, bound);
        parameters_.push_back(recorder_.graph().bound.back());
      } else {
        bound.value = tied->value;
        parameters_.push_back(std::move(bound));
      }
    }
    for (const NamedTensor& buffer : spec_.buffers) {
      recorder_.DefineBuffer(buffer.tensor, buffer.name);
    }
    for (const at::Tensor& input : spec_.inputs) {
      at::Tensor own = input.detach().contiguous();
      // The graph takes inputs one by one, so inputs that share memory are different values.
      inputs_.push_back(SharesMemory(own) ? own.clone() : own);
      recorder_.DefineInput(inputs_.back());
    }
    for (const int input : spec_.input_gradients) Input(input).requires_grad_(true);
  }

  // Returns whether it shares memory with an earlier input, a parameter or a buffer.
  bool SharesMemory(const at::Tensor& tensor) const {
    const auto is_alias = [&](const NamedTensor& other) {
      return other.tensor.is_alias_of(tensor);
    };
    return std::ranges::any_of(
               inputs_, [&](const at::Tensor& other) { return other.is_alias_of(tensor); }) ||
           std::ranges::any_of(spec_.parameters, is_alias) ||
           std::ranges::any_of(spec_.buffers, is_alias);
  }

  at::Tensor& Input(int index) { return inputs_[index]; }

  std::vector<at::Tensor> UpdatedBuffers() const {
    std::vector<at::Tensor> updated;
    for (const NamedTensor& buffer : spec_.buffers) {
      if (recorder_.IsUpdated(buffer.tensor)) updated.push_back(buffer.tensor.detach());
    }
    return updated;
  }

  std::vector<at::Tensor> Outputs() {
    const CaptureScope scope(recorder_);
    std::vector<at::Tensor> outputs = spec_.forward(inputs_);
    if (outputs.empty()) throw CaptureError("the stage returns no output");
    for (at::Tensor& output : outputs) {
      if (!output.defined()) throw CaptureError("an output of the stage is an undefined tensor");
      output = output.contiguous();
      // The next stage may read it while the parameter is updated.
      if (AliasesParameter(output)) output = output.clone();
    }
    return outputs;
  }

  bool AliasesParameter(const at::Tensor& tensor) const {
    return std::any_of(parameters_.begin(), parameters_.end(),
                       [&](const Bound& bound) { return bound.tensor.is_alias_of(tensor); });
  }

  // Returns, by output, the gradient that its backward starts from; undefined if it has none.
  std::vector<at::Tensor> BindOutputGradients(const std::vector<at::Tensor>& outputs) {
    output_gradients_.assign(outputs.size(), kNoValue);
    std::vector<at::Tensor> starts;
    if (spec_.output_gradient) {
      if (outputs[0].numel() != 1)
        throw CaptureError("the first output of the stage is a loss but not a scalar");
      const at::TensorOptions options = outputs[0].options().requires_grad(false);
      starts.push_back(
          at::scalar_tensor(*spec_.output_gradient, options).reshape(outputs[0].sizes()));
    }
    for (std::size_t i = starts.size(); i < outputs.size(); ++i) {
      at::Tensor& start = starts.emplace_back();
      if (!outputs[i].requires_grad()) continue;
      start = at::zeros_like(outputs[i], outputs[i].options().requires_grad(false));
      output_gradients_[i] = recorder_.DefineInput(start);
    }
    return starts;
  }

  // Returns the gradients in the order of the joint graph's outputs; undefined if there is none.
  std::vector<at::Tensor> Gradients(const std::vector<at::Tensor>& outputs,
                                    const std::vector<at::Tensor>& starts) {
    std::vector<at::Tensor> all(spec_.parameters.size() + spec_.input_gradients.size());
    std::vector<at::Tensor> wanted, from, from_gradients;
    std::vector<std::size_t> indices;  // by wanted tensor: its index in `all`
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      if (!starts[i].defined() || !outputs[i].requires_grad()) continue;
      from.push_back(outputs[i]);
      from_gradients.push_back(starts[i]);
    }
    for (std::size_t i = 0; i < spec_.parameters.size(); ++i) {
      if (!spec_.parameters[i].tensor.requires_grad() || IsTied(i)) continue;
      wanted.push_back(spec_.parameters[i].tensor);
      indices.push_back(i);
    }
    for (std::size_t i = 0; i < spec_.input_gradients.size(); ++i) {
      wanted.push_back(Input(spec_.input_gradients[i]));
      indices.push_back(spec_.parameters.size() + i);
    }
    if (wanted.empty() || from.empty()) return all;
    const std::vector<at::Tensor> stored = StoredGradients();
    const CaptureScope scope(recorder_);
    const OneAutogradThread here;
    const auto gradients =
        torch::autograd::grad(from, wanted, from_gradients, /*retain_graph=*/false,
                              /*create_graph=*/false, /*allow_unused=*/true);
    RefuseStored(stored);
    for (std::size_t i = 0; i < indices.size(); ++i) all[indices[i]] = gradients[i];
    FinishInputGradients(std::span(all).subspan(spec_.parameters.size()));
    return all;
  }

  std::vector<at::Tensor> StoredGradients() const {
    std::vector<at::Tensor> stored;
    for (const NamedTensor& parameter : spec_.parameters) stored.push_back(parameter.tensor.grad());
    return stored;
  }

  // Refuses a backward that has stored a gradient in a parameter instead of returning it, as an
  // autograd function does whose backward calls backward().
  void RefuseStored(const std::vector<at::Tensor>& before) const {
    std::string stored;
    for (std::size_t i = 0; i < before.size(); ++i) {
      const auto& [name, parameter] = spec_.parameters[i];
      if (parameter.grad().is_same(before[i])) continue;
      parameter.mutable_grad() = before[i];
      if (stored.empty()) stored = name;
    }
    if (stored.empty()) return;
    throw CaptureError(fmt::format(
        "the backward of the stage calls backward() again, which stores the gradient of parameter "
        "'{}' where compiled steps do not see it; use torch.utils.checkpoint",
        stored));
  }

  // The sender of an input waits for its gradient, so an input that no output depends on gets
  // zeros.
  void FinishInputGradients(std::span<at::Tensor> gradients) {
    const bool any = std::any_of(gradients.begin(), gradients.end(),
                                 [](const at::Tensor& gradient) { return gradient.defined(); });
    for (std::size_t i = 0; any && i < gradients.size(); ++i) {
      const at::Tensor& input = Input(spec_.input_gradients[i]);
      gradients[i] = gradients[i].defined()
                         ? gradients[i].contiguous()
                         : at::zeros(input.sizes(), input.options().requires_grad(false));
    }
  }

  bool IsTied(std::size_t parameter) const {
    return std::any_of(
        parameters_.begin(), parameters_.begin() + static_cast<std::ptrdiff_t>(parameter),
        [&](const Bound& bound) { return bound.value == parameters_[parameter].value; });
  }

  const StageSpec& spec_;
  Recorder& recorder_;
  std::vector<Bound> parameters_;  // all parameters of the spec
  std::vector<at::Tensor> inputs_;
  std::vector<ValueId> output_gradients_;
};

// Returns where all tensors of the stage are.
// Returns the op that an error about a missing kernel names first, else all that it says.
std::string OpOf(const c10::NotImplementedError& error) {
  const std::string text = ExceptionLine(error);
  const std::size_t begin = text.find('\''), end = text.find('\'', begin + 1);
  return end == std::string::npos ? text : text.substr(begin + 1, end - begin - 1);
}

Result<c10::Device> DeviceOf(const StageSpec& spec) {
  std::optional<std::pair<std::string, c10::Device>> first;
  std::optional<Error> error;
  const auto visit = [&](const std::string& name, const at::Tensor& tensor) {
    if (!tensor.defined() || error) return;
    if (!first) first.emplace(name, tensor.device());
    if (tensor.device() == first->second) return;
    error = {
        ErrorCode::kInvalidArgument,
        fmt::format("capture: {} is on {}, but {} is on {}; move the whole stage to one device",
                    name, tensor.device().str(), first->first, first->second.str())};
  };
  for (const NamedTensor& each : spec.parameters) visit("parameter " + each.name, each.tensor);
  for (const NamedTensor& each : spec.buffers) visit("buffer " + each.name, each.tensor);
  for (std::size_t i = 0; i < spec.inputs.size(); ++i) {
    visit(fmt::format("input {}", i), spec.inputs[i]);
  }
  if (error) return tl::unexpected(*error);
  return first ? first->second : c10::Device(c10::kCPU);
}

Status CheckInputGradients(const StageSpec& spec) {
  for (const int input : spec.input_gradients) {
    const std::size_t index = input;
    if (index >= spec.inputs.size() ||
        !torch::autograd::isDifferentiableType(spec.inputs[index].scalar_type())) {
      return InvalidArgument(
          "capture: input_gradients contains input {}, which {}", input,
          index >= spec.inputs.size() ? "does not exist" : "is not floating point");
    }
  }
  return {};
}

std::vector<ValueId> RootsOf(const Graph& graph, std::span<const ValueId> values,
                             const std::vector<int>& indices) {
  std::vector<ValueId> roots;
  for (const int index : indices) {
    roots.push_back(graph.Root(values[index]));
  }
  return roots;
}

}  // namespace

Recorder* CurrentRecorder() { return recording; }

std::vector<ValueId> JointGraph::KeptInputs() const {
  return RootsOf(graph, graph.inputs, kept_inputs);
}
std::vector<ValueId> JointGraph::KeptOutputs() const {
  return RootsOf(graph, outputs(), kept_outputs);
}

bool IsCapturing() { return recording != nullptr; }

Result<JointGraph> CaptureStage(const StageSpec& spec) {
  PENSTOCK_TRY_STATUS(CheckInputGradients(spec));
  PENSTOCK_TRY(const c10::Device device, DeviceOf(spec));
  if (recording != nullptr)
    return InvalidArgument("capture: this thread is already capturing a stage");
  std::unique_lock<std::mutex> lock;
  if (spec.exclusive != nullptr) lock = std::unique_lock(*spec.exclusive);
  Recorder recorder(spec.numbers_random_ops, spec.exclusive != nullptr);
  SetRandomOp(0);
  const GeneratorStateGuard keep_random_state;
  try {
    JointGraph joint = Tracer(spec, recorder).Trace();
    joint.gradient_dtype = spec.gradient_dtype;
    joint.device = device;
    if (spec.sharding) ShardParameters(joint, *spec.sharding);
    return joint;
  } catch (const CaptureError& error) {
    return InvalidArgument("capture: {}", error.what());
  } catch (const c10::NotImplementedError& error) {
    return InvalidArgument("capture: {} has no kernel for {}", OpOf(error), device.str());
  } catch (const c10::Error& error) {
    return InvalidArgument("capture: the stage's own code failed: {}", ExceptionLine(error));
  }
}

}  // namespace penstock
