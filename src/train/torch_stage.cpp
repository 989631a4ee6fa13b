#include "train/torch_stage.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <numeric>
#include <span>

#include "base/mix_bits.h"
#include "graph/compile.h"
#include "graph/interpret.h"
#include "graph/print.h"
#include "model/model.h"
#include "train/bound_program.h"
#include "train/stage_weights.h"

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

// The tensor that a message carries: the sender's own, of any shape, where it came by reference;
// else its bytes, of the shape that is due.
at::Tensor ToTensor(Message message, const TensorType& type) {
  if (message.release() == ReleaseTensor) {
    return at::Tensor(c10::intrusive_ptr<c10::TensorImpl>::reclaim(
        static_cast<c10::TensorImpl*>(message.TakeOwner())));
  }
  const auto expected = static_cast<std::size_t>(BytesOf(type));
  if (message.bytes() != expected) {
    throw std::runtime_error(fmt::format("a message of {} bytes came where {} ({} bytes) is due",
                                         message.bytes(), PrintType(type), expected));
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

// Compiles the stage for an input (and targets) of another shape.
using Recompile =
    std::function<Result<StageProgram>(const at::Tensor& input, const at::Tensor& targets)>;

// More shapes than this are a mistake: each costs a capture and its constants.
constexpr std::size_t kMostShapes = 64;

class CompiledStage final : public TorchStage {
 public:
  // `working` are what is computed with, `masters` what is trained: the same, or casts of them.
  CompiledStage(StageProgram program, std::span<const NamedTensor> working,
                std::span<const NamedTensor> masters, BatchSource source,
                const TorchStageOptions& options, Update update, Recompile recompile)
      : source_(std::move(source)),
        options_(options),
        update_(std::move(update)),
        recompile_(std::move(recompile)),
        rows_(static_cast<std::size_t>(options.microbatches) *
              static_cast<std::size_t>(options.steps)),
        losses_(options.last ? rows_.size() : 0),
        weights_(working, masters, options, losses_.size()),
        binding_{weights_.values(), weights_.gradients(), at::detail::createCPUGenerator()} {
    programs_.push_back(std::make_unique<BoundProgram>(std::move(program), binding_));
    for (Row& row : rows_) row.held.resize(static_cast<std::size_t>(Expected().held));
  }

  void BeginStep(std::int64_t step) override {
    for (std::size_t row = 0; row < rows_.size(); ++row) {
      PENSTOCK_CHECK(rows_[row].state == RowState::kEmpty, "step {} begins while microbatch {} {}",
                     step, row, NameOf(rows_[row].state));
    }
    std::fill(losses_.begin(), losses_.end(), 0.0F);
    step_ = step;
    updates_before_ = step * options_.microbatches / options_.versions.rows_an_update;
    if (first_update_ < 0) {
      first_update_ = updates_before_;
      weights_.StartAt(first_update_);
    }
  }

  void Forward(int number, Message input, Outlet& output) override {
    Row& row = Enter(number, "F", RowState::kEmpty, RowState::kForwardDone);
    at::Tensor first = options_.first ? source_.tokens(StepOf(number), InStep(number)).contiguous()
                                      : ToTensor(std::move(input), Expected().input);
    at::Tensor targets;
    if (options_.last) targets = source_.targets(StepOf(number), InStep(number)).contiguous();
    row.bound = &ProgramFor(number, first, targets);
    const StageProgram& program = row.bound->program;
    row.held.resize(static_cast<std::size_t>(program.held));
    At(row, program.stage_inputs[0]) = std::move(first);
    if (options_.last) At(row, program.stage_inputs[1]) = std::move(targets);
    SeedRandom(program, number, Op::kForward);
    at::Tensor result = row.bound->forward.Run(row.held);
    activation_bytes_ += program.saved_bytes;
    if (options_.last) {
      losses_[static_cast<std::size_t>(number)] = *result.const_data_ptr<float>();
    } else {
      output.Send(ToMessage(std::move(result)));
    }
  }

  void Backward(int row, Message output_gradient, Outlet& input_gradient) override {
    BackwardInput(row, std::move(output_gradient), input_gradient);
    BackwardWeight(row);
  }

  void BackwardInput(int number, Message output_gradient, Outlet& input_gradient) override {
    Row& row = Enter(number, "backward", RowState::kForwardDone, RowState::kInputDone);
    const StageProgram& program = row.bound->program;
    if (program.output_gradient >= 0) {
      At(row, program.output_gradient) = ToTensor(std::move(output_gradient), program.output);
    }
    SeedRandom(program, number, Op::kBackwardInput);
    at::Tensor result = row.bound->backward_input.Run(row.held);
    activation_bytes_ += program.live_bytes - program.saved_bytes;
    if (!options_.first) input_gradient.Send(ToMessage(std::move(result)));
  }

  void BackwardWeight(int number) override {
    Row& row = Enter(number, "W", RowState::kInputDone, RowState::kEmpty);
    const StageProgram& program = row.bound->program;
    SeedRandom(program, number, Op::kBackwardWeight);
    row.bound->backward_weight.Run(row.held);
    activation_bytes_ -= program.live_bytes;
  }

  void Step() override { weights_.Step(update_); }
  void TryStep() override { weights_.TryStep(update_); }
  void KeepStep() override { weights_.KeepStep(); }
  void UndoStep() override { weights_.UndoStep(); }
  void ScaleGradients(double factor) override { weights_.ScaleGradients(factor); }
  void DropGradients() override { weights_.DropGradients(); }
  std::span<const double> SquaredNorms() override { return weights_.SquaredNorms(); }
  Message ShareGradients() override { return weights_.Share(losses_); }
  void TakeGradients(int chain, Message gradients) override {
    weights_.Take(chain, std::move(gradients));
  }
  void AddGradients() override { weights_.Add(); }
  void DropRows() override {
    for (Row& row : rows_) {
      row.state = RowState::kEmpty;
      for (at::Tensor& value : row.held) value.reset();
    }
    activation_bytes_ = 0;
  }
  bool Keeps(WeightPolicy policy) const override { return policy == options_.weights; }

  std::int64_t ActivationBytes() const override { return activation_bytes_; }
  std::vector<NamedParameter>& Parameters() override { return weights_.parameters(); }
  int WeightVersions() const override { return weights_.versions(); }
  std::int64_t WeightVersionBytes() const override { return weights_.VersionBytes(); }
  double StepLoss() const override {
    if (!options_.last) return 0;
    // In the order of rows, whatever the schedule's, so that it is the same for every schedule.
    double sum = 0;
    for (int chain = 0; chain < options_.replicas; ++chain) {
      for (const float loss : chain == options_.chain ? OwnLosses() : weights_.Tail(chain)) {
        sum += loss;
      }
    }
    return sum / (options_.microbatches * options_.replicas);
  }
  std::int64_t SavedBytes() const override { return Expected().saved_bytes; }
  std::int64_t LiveBytes() const override { return Expected().live_bytes; }
  at::Tensor ExampleOutput() const override {
    if (options_.last) return {};
    const TensorType& type = Expected().output;
    return at::empty(type.sizes, at::TensorOptions().dtype(type.dtype));
  }

 private:
  // What a microbatch holds.
  struct Row {
    RowState state = RowState::kEmpty;
    BoundProgram* bound = nullptr;  // of its shape
    std::vector<at::Tensor> held;   // by the program's places
  };

  // The step and the microbatch of it that a row is.
  std::int64_t StepOf(int row) const { return step_ + row / options_.microbatches; }
  int InStep(int row) const {
    return options_.chain * options_.microbatches + row % options_.microbatches;
  }
  // Of the last step whose update is made, by row; of the only one before any.
  std::span<const float> OwnLosses() const {
    const std::int64_t rows =
        (weights_.updates() - updates_before_) * options_.versions.rows_an_update;
    const auto step = static_cast<std::size_t>(
        std::clamp<std::int64_t>(rows / options_.microbatches, 1, options_.steps) - 1);
    const auto count = static_cast<std::size_t>(options_.microbatches);
    return std::span(losses_).subspan(step * count, count);
  }
  void UseVersionOf(int row) {
    if (options_.versions.older == 0) return;
    const std::int64_t run_row = step_ * options_.microbatches + row;
    weights_.Use(std::max(first_update_, options_.versions.VersionOf(run_row)));
  }
  static at::Tensor& At(Row& row, int place) { return row.held[static_cast<std::size_t>(place)]; }
  // Of the shape that the stage was made for.
  const StageProgram& Expected() const { return programs_.front()->program; }

  void SeedRandom(const StageProgram& program, int row, Op op) {
    if (!program.random) return;
    binding_.generator.set_current_seed(SeedOfRun(options_.seed, StepOf(row), InStep(row), op));
  }

  // The microbatch, which must be in state `from`; it is in state `to` from now on.
  Row& Enter(int number, const char* action, RowState from, RowState to) {
    PENSTOCK_CHECK(number >= 0 && static_cast<std::size_t>(number) < rows_.size(),
                   "{} of microbatch {}: a step has {}", action, number, rows_.size());
    Row& row = rows_[static_cast<std::size_t>(number)];
    PENSTOCK_CHECK(row.state == from, "{} of microbatch {}, which {}", action, number,
                   NameOf(row.state));
    row.state = to;
    UseVersionOf(number);
    return row;
  }

  bool Fits(const BoundProgram& bound, const at::Tensor& input, const at::Tensor& targets) const {
    return input.sizes() == c10::IntArrayRef(bound.program.input.sizes) &&
           (!options_.last || targets.sizes() == c10::IntArrayRef(bound.targets().sizes));
  }

  // Compiled now where an input has a shape that none had before.
  BoundProgram& ProgramFor(int row, const at::Tensor& input, const at::Tensor& targets) {
    for (const auto& bound : programs_) {
      if (Fits(*bound, input, targets)) return *bound;
    }
    const auto fail = [&](const std::string& reason) {
      throw std::runtime_error(fmt::format("step {} microbatch {}: an input of {}, made for {}: {}",
                                           step_, row, PrintType(TypeOf(input)),
                                           PrintType(Expected().input), reason));
    };
    if (input.scalar_type() != Expected().input.dtype) fail("another dtype");
    if (programs_.size() == kMostShapes) fail("too many shapes");
    // A tensor of a run carries no gradient; its copy can.
    auto program = recompile_(input.clone(), targets);
    if (!program) fail(program.error().message);
    programs_.push_back(std::make_unique<BoundProgram>(*std::move(program), binding_));
    return *programs_.back();
  }

  BatchSource source_;
  TorchStageOptions options_;
  Update update_;
  Recompile recompile_;
  std::vector<Row> rows_;
  std::vector<float> losses_;  // by row; last stages only
  StageWeights weights_;
  GraphBinding binding_;
  std::vector<std::unique_ptr<BoundProgram>> programs_;  // one a shape; the expected one first
  std::int64_t step_ = 0;
  std::int64_t updates_before_ = 0;  // the step
  std::int64_t first_update_ = -1;   // of the run; -1 before it
  std::int64_t activation_bytes_ = 0;
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
  spec.output_gradient =
      1.0 / (options.mean_over > 0 ? options.mean_over : options.microbatches * options.replicas);
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
                                                     BatchSource source,
                                                     const TorchStageOptions& options,
                                                     Update update) {
  PENSTOCK_TRY_STATUS(CheckOptions(options, example_input, example_targets));
  const std::shared_ptr<StageModule> captured = options.working ? options.working : module;
  const Recompile compile = [captured, options](const at::Tensor& input,
                                                const at::Tensor& targets) {
    CompileOptions how;
    how.exact = options.exact;
    how.fuse = options.fuse;
    how.hold = options.hold;
    how.hold_for_weight = options.hold_for_weight;
    return CompileStage(MakeStageSpec(captured, input, targets, options), how);
  };
  Result<StageProgram> program =
      options.program ? *options.program : compile(example_input, example_targets);
  if (!program) return tl::unexpected(std::move(program).error());
  if (!options.first && !program->has_input_gradient) {
    return InvalidArgument(
        "the stage's output does not depend on its input: nothing to train "
        "before it");
  }
  return std::unique_ptr<TorchStage>(std::make_unique<CompiledStage>(
      *std::move(program), ParametersOf(*captured), ParametersOf(*module), std::move(source),
      options, std::move(update), compile));
}

}  // namespace penstock
