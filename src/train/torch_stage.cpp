#include "train/torch_stage.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <numeric>
#include <span>

#include "base/mix_bits.h"
#include "graph/compile.h"
#include "graph/interpret.h"
#include "graph/print.h"
#include "model/model.h"

namespace penstock {
namespace {

void ReleaseTensor(void* owner) {
  c10::intrusive_ptr<c10::TensorImpl>::reclaim(static_cast<c10::TensorImpl*>(owner));
}

// Hands the tensor itself over; allocates nothing.
Message ToMessage(at::Tensor tensor) {
  void* const data = const_cast<void*>(tensor.const_data_ptr());
  const std::size_t bytes = tensor.nbytes();
  return Message(data, bytes, tensor.unsafeReleaseTensorImpl(), ReleaseTensor);
}

bool Fits(const at::Tensor& tensor, const TensorType& type) {
  return tensor.scalar_type() == type.dtype && tensor.sizes() == c10::IntArrayRef(type.sizes) &&
         tensor.is_contiguous();
}

// The tensor that a message carries: the sender's own where it came by reference, else its bytes.
at::Tensor ToTensor(Message message, const TensorType& type) {
  const auto expected = static_cast<std::size_t>(BytesOf(type));
  if (message.bytes() != expected) {
    throw std::runtime_error(fmt::format("a message of {} bytes came where {} ({} bytes) is due",
                                         message.bytes(), PrintType(type), expected));
  }
  if (message.release() == ReleaseTensor) {
    return at::Tensor(c10::intrusive_ptr<c10::TensorImpl>::reclaim(
        static_cast<c10::TensorImpl*>(message.TakeOwner())));
  }
  void* const data = message.data();
  const auto keep = std::make_shared<Message>(std::move(message));
  return at::from_blob(
      data, type.sizes, [keep](void*) {}, at::TensorOptions().dtype(type.dtype));
}

// What a row holds; each action asks for the state that it needs.
enum class RowState : std::uint8_t { kEmpty, kForwardDone, kInputDone };

const char* NameOf(RowState state) {
  switch (state) {
    case RowState::kEmpty:
      return "holds nothing";
    case RowState::kForwardDone:
      return "is between F and its backward";
    case RowState::kInputDone:
      return "is between I and W";
  }
  return "";
}

// A piece bound to its program, with room for what goes in and out.
struct BoundPiece {
  Piece piece;
  GraphProgram program;
  std::vector<at::Tensor> inputs;
  std::vector<at::Tensor> outputs;

  BoundPiece(Piece from, const GraphBinding& binding)
      : piece(std::move(from)),
        program(piece.graph, binding),
        inputs(piece.inputs.size()),
        outputs(piece.outputs.size()) {}

  // Runs on what the row holds; returns what leaves the stage.
  at::Tensor Run(std::span<at::Tensor> held) {
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      at::Tensor& value = held[static_cast<std::size_t>(piece.inputs[i])];
      inputs[i] = piece.last[i] ? std::move(value) : value;
    }
    program.Run(inputs, outputs);
    at::Tensor result;
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      at::Tensor& to =
          piece.outputs[i] < 0 ? result : held[static_cast<std::size_t>(piece.outputs[i])];
      to = std::move(outputs[i]);
    }
    return result;
  }
};

// Gradients of all parameters, in fp32, in one piece of memory, so that one call clears them.
struct Gradients {
  at::Tensor flat;
  std::vector<at::Tensor> each;

  explicit Gradients(std::span<const NamedTensor> parameters) {
    constexpr std::int64_t kAlign = 64;  // elements: a cache line at least
    std::vector<std::int64_t> starts;
    std::int64_t size = 0;
    for (const NamedTensor& parameter : parameters) {
      starts.push_back(size);
      size += (parameter.tensor.numel() + kAlign - 1) / kAlign * kAlign;
    }
    if (parameters.empty()) return;
    flat = at::zeros({size},
                     parameters.front().tensor.options().dtype(at::kFloat).requires_grad(false));
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const at::Tensor& like = parameters[i].tensor;
      each.push_back(flat.as_strided(like.sizes(), like.strides(), starts[i]));
    }
  }
};

class CompiledStage final : public TorchStage {
 public:
  // `working` are what is computed with, `masters` what is trained: the same, or casts of them.
  CompiledStage(StageProgram program, std::span<const NamedTensor> working,
                std::span<const NamedTensor> masters, BatchSource source,
                const TorchStageOptions& options, Update update)
      : program_(std::move(program)),
        source_(std::move(source)),
        options_(options),
        update_(std::move(update)),
        gradients_(working),
        binding_{Values(working), gradients_.each, at::detail::createCPUGenerator()},
        forward_(program_.forward, binding_),
        backward_input_(program_.backward_input, binding_),
        backward_weight_(program_.backward_weight, binding_),
        held_(static_cast<std::size_t>(options.microbatches) *
              static_cast<std::size_t>(program_.held)),
        states_(static_cast<std::size_t>(options.microbatches), RowState::kEmpty),
        losses_(static_cast<std::size_t>(options.microbatches), 0.0) {
    for (std::size_t i = 0; i < masters.size(); ++i) {
      parameters_.push_back({masters[i].name, masters[i].tensor.detach(), gradients_.each[i]});
    }
  }

  void BeginStep(std::int64_t step) override {
    for (std::size_t row = 0; row < states_.size(); ++row) {
      PENSTOCK_CHECK(states_[row] == RowState::kEmpty, "step {} begins while microbatch {} {}",
                     step, row, NameOf(states_[row]));
    }
    step_ = step;
    rows_done_ = 0;
    std::fill(losses_.begin(), losses_.end(), 0.0);
  }

  void Forward(int row, Message input, Outlet& output) override {
    const std::span<at::Tensor> held = Enter(row, "F", RowState::kEmpty, RowState::kForwardDone);
    At(held, program_.stage_inputs[0]) = options_.first
                                             ? Read(source_.tokens, row, program_.input, "tokens")
                                             : ToTensor(std::move(input), program_.input);
    if (options_.last) {
      const TensorType& type = program_.forward.graph.value(program_.forward.graph.inputs[1]).type;
      At(held, program_.stage_inputs[1]) = Read(source_.targets, row, type, "targets");
    }
    SeedRandom(row, Op::kForward);
    at::Tensor result = forward_.Run(held);
    activation_bytes_ += program_.saved_bytes;
    if (options_.last) {
      losses_[static_cast<std::size_t>(row)] = *result.const_data_ptr<float>();
      ++rows_done_;
    } else {
      output.Send(ToMessage(std::move(result)));
    }
  }

  void Backward(int row, Message output_gradient, Outlet& input_gradient) override {
    BackwardInput(row, std::move(output_gradient), input_gradient);
    BackwardWeight(row);
  }

  void BackwardInput(int row, Message output_gradient, Outlet& input_gradient) override {
    const std::span<at::Tensor> held =
        Enter(row, "backward", RowState::kForwardDone, RowState::kInputDone);
    if (program_.output_gradient >= 0) {
      At(held, program_.output_gradient) = ToTensor(std::move(output_gradient), program_.output);
    }
    SeedRandom(row, Op::kBackwardInput);
    at::Tensor result = backward_input_.Run(held);
    activation_bytes_ += program_.live_bytes - program_.saved_bytes;
    if (!options_.first) input_gradient.Send(ToMessage(std::move(result)));
  }

  void BackwardWeight(int row) override {
    const std::span<at::Tensor> held = Enter(row, "W", RowState::kInputDone, RowState::kEmpty);
    SeedRandom(row, Op::kBackwardWeight);
    backward_weight_.Run(held);
    activation_bytes_ -= program_.live_bytes;
  }

  void Step() override {
    const at::NoGradGuard no_gradients;
    update_(parameters_);
    for (std::size_t i = 0; options_.working && i < parameters_.size(); ++i) {
      binding_.parameters[i].copy_(parameters_[i].value);
    }
    if (gradients_.flat.defined()) gradients_.flat.zero_();
  }

  std::int64_t ActivationBytes() const override { return activation_bytes_; }
  std::vector<NamedParameter>& Parameters() override { return parameters_; }
  double StepLoss() const override {
    // In the order of rows, whatever the schedule's, so that it is the same for every schedule.
    const double sum = std::accumulate(losses_.begin(), losses_.end(), 0.0);
    return rows_done_ == 0 ? 0.0 : sum / rows_done_;
  }
  std::int64_t SavedBytes() const override { return program_.saved_bytes; }
  std::int64_t LiveBytes() const override { return program_.live_bytes; }
  at::Tensor ExampleOutput() const override {
    if (options_.last) return {};
    return at::empty(program_.output.sizes, at::TensorOptions().dtype(program_.output.dtype));
  }

 private:
  static std::vector<at::Tensor> Values(std::span<const NamedTensor> parameters) {
    std::vector<at::Tensor> values;
    for (const NamedTensor& parameter : parameters) values.push_back(parameter.tensor.detach());
    return values;
  }
  static at::Tensor& At(std::span<at::Tensor> held, int place) {
    return held[static_cast<std::size_t>(place)];
  }

  void SeedRandom(int row, Op op) {
    if (!program_.random) return;
    binding_.generator.set_current_seed(SeedOfRun(options_.seed, step_, row, op));
  }

  // What `row` holds, which must be in state `from`; it is in state `to` from now on.
  std::span<at::Tensor> Enter(int row, const char* action, RowState from, RowState to) {
    PENSTOCK_CHECK(row >= 0 && row < options_.microbatches, "{} of microbatch {}: a step has {}",
                   action, row, options_.microbatches);
    RowState& state = states_[static_cast<std::size_t>(row)];
    PENSTOCK_CHECK(state == from, "{} of microbatch {}, which {}", action, row, NameOf(state));
    state = to;
    const auto held = static_cast<std::size_t>(program_.held);
    return std::span(held_).subspan(static_cast<std::size_t>(row) * held, held);
  }

  at::Tensor Read(const std::function<at::Tensor(std::int64_t, int)>& read, int row,
                  const TensorType& type, const char* what) const {
    at::Tensor tensor = read(step_, row).contiguous();
    if (!Fits(tensor, type)) {
      throw std::runtime_error(fmt::format("the {} of step {} microbatch {} are {}, not {}", what,
                                           step_, row, PrintType(TypeOf(tensor)), PrintType(type)));
    }
    return tensor;
  }

  StageProgram program_;
  BatchSource source_;
  TorchStageOptions options_;
  Update update_;
  Gradients gradients_;
  GraphBinding binding_;
  BoundPiece forward_;
  BoundPiece backward_input_;
  BoundPiece backward_weight_;
  std::vector<at::Tensor> held_;  // rows of program_.held places
  std::vector<RowState> states_;  // by row
  std::vector<double> losses_;    // by row
  std::vector<NamedParameter> parameters_;
  std::int64_t step_ = 0;
  std::int64_t activation_bytes_ = 0;
  int rows_done_ = 0;
};

// Dropout and its like are on while this lives.
class TrainingMode {
 public:
  explicit TrainingMode(StageModule& module) : module_(module) { module_.train(); }
  ~TrainingMode() { module_.eval(); }
  TrainingMode(const TrainingMode&) = delete;
  TrainingMode& operator=(const TrainingMode&) = delete;

 private:
  StageModule& module_;
};

// Tied weights once, under the first of their names.
std::vector<NamedTensor> ParametersOf(const StageModule& module) {
  std::vector<NamedTensor> parameters;
  for (const auto& parameter : module.named_parameters()) {
    const bool tied = std::any_of(
        parameters.begin(), parameters.end(),
        [&](const NamedTensor& before) { return before.tensor.is_same(parameter.value()); });
    if (!tied) parameters.push_back({parameter.key(), parameter.value()});
  }
  return parameters;
}

Status CheckOptions(const TorchStageOptions& options, const at::Tensor& example_input,
                    const at::Tensor& example_targets) {
  if (options.microbatches < 1) {
    return InvalidArgument("a step needs at least 1 microbatch, not {}", options.microbatches);
  }
  if (!example_input.defined()) return InvalidArgument("a stage needs an example input");
  if (options.last && !example_targets.defined()) {
    return InvalidArgument("a last stage needs example targets for its loss");
  }
  return {};
}

}  // namespace

std::uint64_t SeedOfRun(std::uint64_t stage_seed, std::int64_t step, int row, Op op) {
  std::uint64_t seed = stage_seed;
  for (const auto part : {step, std::int64_t{row}, static_cast<std::int64_t>(op)}) {
    seed = SeedOf(seed, static_cast<std::uint64_t>(part));
  }
  return seed;
}

StageSpec MakeStageSpec(const std::shared_ptr<StageModule>& module, const at::Tensor& example_input,
                        const at::Tensor& example_targets, const TorchStageOptions& options) {
  StageSpec spec;
  spec.parameters = ParametersOf(*module);
  spec.inputs = {example_input};
  spec.input_gradient = !options.first;
  if (!options.last) {
    spec.forward = [module](std::span<const at::Tensor> inputs) {
      const TrainingMode training(*module);
      return module->forward(inputs[0]);
    };
    return spec;
  }
  spec.inputs.push_back(example_targets);
  spec.output_gradient = 1.0 / options.microbatches;
  spec.forward = [module](std::span<const at::Tensor> inputs) {
    const TrainingMode training(*module);
    const at::Tensor logits = module->forward(inputs[0]).to(at::kFloat);
    return at::cross_entropy_loss(logits.reshape({-1, logits.size(-1)}), inputs[1].reshape({-1}));
  };
  return spec;
}

Result<std::unique_ptr<TorchStage>> TorchStage::Make(const std::shared_ptr<StageModule>& module,
                                                     const at::Tensor& example_input,
                                                     const at::Tensor& example_targets,
                                                     BatchSource source, TorchStageOptions options,
                                                     Update update) {
  PENSTOCK_TRY_STATUS(CheckOptions(options, example_input, example_targets));
  const std::shared_ptr<StageModule>& captured = options.working ? options.working : module;
  const StageSpec spec = MakeStageSpec(captured, example_input, example_targets, options);
  CompileOptions compile;
  compile.exact = options.exact;
  compile.hold = options.hold;
  compile.hold_for_weight = options.hold_for_weight;
  Result<StageProgram> made = options.program ? *options.program : CompileStage(spec, compile);
  if (!made) return tl::unexpected(std::move(made).error());
  StageProgram program = *std::move(made);
  if (!options.first && !program.has_input_gradient) {
    return InvalidArgument(
        "the stage's output does not depend on its input: nothing to train "
        "before it");
  }
  return std::unique_ptr<TorchStage>(
      std::make_unique<CompiledStage>(std::move(program), spec.parameters, ParametersOf(*module),
                                      std::move(source), options, std::move(update)));
}

}  // namespace penstock
