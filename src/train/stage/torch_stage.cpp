#include "train/stage/torch_stage.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <numeric>
#include <optional>
#include <span>

#include "base/index.h"
#include "graph/ir/print.h"
#include "graph/run/interpret.h"
#include "model/model.h"
#include "schedule/deps.h"
#include "train/stage/activation_pool.h"
#include "train/stage/bound_pair.h"
#include "train/stage/bound_program.h"
#include "train/stage/slice_state.h"
#include "train/stage/stage_spec.h"
#include "train/stage/stage_weights.h"
#include "train/stage/tensor_message.h"

namespace penstock {
namespace {

// The state of a microbatch; each action requires a certain state.
enum class RowState : std::uint8_t { kEmpty, kForwardDone, kInputDone };

const char* NameOf(RowState state) {
  switch (state) {
    case RowState::kEmpty:
      return "is not in flight";
    case RowState::kForwardDone:
      return "is between F and its backward";
    case RowState::kInputDone:
      return "is between I and W";
  }
  return "";
}

// Compiles the stage for inputs (and targets) of other shapes.
using Recompile = std::function<Result<StageProgram>(const StageExamples& examples)>;

// More shapes than this are a mistake: each costs a capture and its constants.
constexpr std::size_t kMostShapes = 64;

class CompiledStage final : public TorchStage {
 public:
  // `programs` has one entry per slice. The stage computes with `working` and trains `masters`,
  // which are the same tensors or casts of each other.
  CompiledStage(std::vector<StageProgram> programs, std::span<const NamedTensor> working,
                std::span<const NamedTensor> masters, BatchSource source,
                const TorchStageOptions& options, Update update, Recompile recompile)
      : source_(std::move(source)),
        options_(options),
        update_(std::move(update)),
        recompile_(std::move(recompile)),
        rows_(Index(options.microbatches) * Index(options.steps)),
        slices_(options.slices(), static_cast<int>(rows_.size()), KeptBy(programs)),
        losses_(options.last ? rows_.size() : 0),
        weights_(working, masters, options, losses_.size()),
        binding_{weights_.values(), weights_.gradients(), at::detail::createCPUGenerator()} {
    for (StageProgram& program : programs) {
      programs_.push_back(std::make_unique<BoundProgram>(std::move(program), binding_));
    }
    for (int slice = 0; slice < options.slices(); ++slice) {
      loss_shares_.push_back(static_cast<float>(ShareOfSlice(options, slice)));
    }
    for (Row& row : rows_) row.held.resize(Expected().slots);
  }

  // A failed run may have left transfers in flight: the pool's threads must be done with
  // them.
  ~CompiledStage() override { DropTransfers(); }
  CompiledStage(const CompiledStage&) = delete;
  CompiledStage& operator=(const CompiledStage&) = delete;

  void BeginStep(std::int64_t step) override {
    for (std::size_t row = 0; row < rows_.size(); ++row) {
      PENSTOCK_CHECK(rows_[row].state == RowState::kEmpty, "step {} begins while microbatch {} {}",
                     step, row, NameOf(rows_[row].state));
    }
    std::fill(losses_.begin(), losses_.end(), 0.0F);
    step_ = step;
    updates_before_ = step * options_.microbatches / options_.versions.microbatches_per_update;
    if (first_update_ < 0) {
      first_update_ = updates_before_;
      weights_.StartAt(first_update_);
    }
  }

  void Forward(int number, Message input, Outlet& output) override {
    Row& row = BeginForward(number, std::move(input));
    EndForward(number, row.bound->forward.Run(row.held), output);
  }

  void Backward(int row, Message output_gradient, Outlet& input_gradient) override {
    BackwardInput(row, std::move(output_gradient), input_gradient);
    BackwardWeight(row);
  }

  void BackwardInput(int number, Message output_gradient, Outlet& input_gradient) override {
    Row& row = BeginBackward(number, std::move(output_gradient));
    const StageProgram& program = row.bound->program;
    SeedRandom(program, number, Op::kBackwardInput);
    const std::span<at::Tensor> results = row.bound->backward_input.Run(row.held);
    activation_bytes_ += program.live_bytes - program.saved_bytes;
    const std::size_t leaving = results.size() - slices_.Earlier(number);
    if (!options_.first) input_gradient.Send(ToMessage(results.first(leaving)));
    activation_bytes_ += slices_.AddGradients(number, results.subspan(leaving));
  }

  void BackwardWeight(int number) override {
    Row& row = Enter(number, "W", RowState::kInputDone, RowState::kEmpty);
    const StageProgram& program = row.bound->program;
    SeedRandom(program, number, Op::kBackwardWeight);
    row.bound->backward_weight.Run(row.held);
    activation_bytes_ -= program.live_bytes;
  }

  std::int64_t Overlap(StageCall first, Stage& other, StageCall second) override {
    auto* const theirs = dynamic_cast<CompiledStage*>(&other);
    const bool forward_first = first.op == Op::kForward;
    StageCall& forward = forward_first ? first : second;
    StageCall& backward = forward_first ? second : first;
    CompiledStage* const to = forward_first ? this : theirs;
    CompiledStage* const from = forward_first ? theirs : this;
    // A stage with several weight versions has only one in use at a time.
    const bool two_versions = theirs == this && options_.versions.older > 0;
    if (theirs == nullptr || options_.slices() > 1 || backward.op != Op::kBackward ||
        two_versions || !BoundPair::Hides(to->Expected(), from->Expected())) {
      return Stage::Overlap(std::move(first), other, std::move(second));
    }
    Row& begun = to->BeginForward(forward.microbatch, std::move(forward.input));
    Row& ended = from->BeginBackward(backward.microbatch, std::move(backward.input));
    const BoundPair::Leaving leaving =
        to->PairOf(*begun.bound, *from, *ended.bound).Run(begun.held, ended.held);
    const auto end = [&](bool the_forward) {
      if (the_forward) to->EndForward(forward.microbatch, leaving.outputs, forward.output);
      if (!the_forward) from->EndBackward(ended, leaving.input_gradients, backward.output);
    };
    end(forward_first);
    const std::int64_t held = activation_bytes_;
    end(!forward_first);
    return held;
  }

  void Step() override { weights_.Step(update_); }
  void TryStep() override { weights_.TryStep(update_); }
  void CommitStep() override { weights_.CommitStep(); }
  void RollBackStep() override { weights_.RollBackStep(); }
  void ScaleGradients(double factor) override { weights_.ScaleGradients(factor); }
  void DropGradients() override { weights_.DropGradients(); }
  std::span<const double> SquaredNorms() override { return weights_.SquaredNorms(); }
  std::string ParameterName(std::size_t index) const override { return weights_.name(index); }
  Message ShareGradients() override { return weights_.Share(losses_); }
  void TakeGradients(int chain, Message gradients) override {
    weights_.Take(chain, std::move(gradients));
  }
  void AddGradients() override { weights_.Add(); }
  Message ShareParameter(int parameter) override { return weights_.ShareParameter(parameter); }
  void TakeParameter(int parameter, int holder, Message gradient) override {
    weights_.TakeParameter(parameter, holder, std::move(gradient));
  }
  void AddParameter(int parameter) override { weights_.AddParameter(parameter); }
  void DropForwards() override {
    DropTransfers();
    for (Row& row : rows_) {
      row.state = RowState::kEmpty;
      for (at::Tensor& value : row.held) value.reset();
    }
    slices_.Clear();
    activation_bytes_ = 0;
  }
  bool Keeps(WeightPolicy policy) const override { return policy == options_.weights; }

  // OFFLOAD and RELOAD move what a microbatch keeps between its actions. RECOMPUTE recomputes it
  // from the inputs that F has kept, with the random numbers of F.
  bool DoesSideWork(Op op) const override {
    if (op == Op::kOffload || op == Op::kReload) return options_.pool != nullptr;
    return op == Op::kRecompute && !options_.recomputed.empty();
  }
  void DoSideWork(Op op, int number) override {
    Row& row = Enter(number, "side work", RowState::kForwardDone, RowState::kForwardDone);
    if (op == Op::kOffload) {
      options_.pool->Offload(row.held, offloaded_bytes_, row.transfer);
    } else if (op == Op::kReload) {
      options_.pool->Reload(row.transfer);
    } else {
      Recompute(row, number);
    }
  }
  bool Await(Op op, int row) override {
    if (options_.pool && (MakesInputGradient(op) || op == Op::kRecompute)) {
      Row& of = rows_[row];
      options_.pool->Await(of.held, of.transfer);
    }
    return true;
  }

  std::int64_t ActivationBytes() const override { return activation_bytes_; }
  std::int64_t OffloadedBytes() const override {
    return offloaded_bytes_.load(std::memory_order_relaxed);
  }
  std::vector<NamedParameter>& Parameters() override { return weights_.parameters(); }
  void Restart() override { first_update_ = -1; }
  int WeightVersions() const override { return weights_.versions(); }
  std::int64_t WeightVersionBytes() const override { return weights_.VersionBytes(); }
  double StepLoss() const override {
    if (!options_.last) return 0;
    // Adds in the order of microbatch indices, so that the sum is the same for every schedule.
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
  std::vector<at::Tensor> ExampleOutputs() const override {
    std::vector<at::Tensor> examples;
    const std::span<const StagePort> outputs = Expected().outputs;
    for (const StagePort& port : outputs.first(outputs.size() - slices_.tensors())) {
      if (options_.last) break;
      // Values that any stage accepts, because it runs on them once.
      const at::Tensor example = at::zeros(port.type.sizes, port.type.dtype);
      examples.push_back(example.requires_grad_(port.has_gradient));
    }
    return examples;
  }

 private:
  // The state of a microbatch.
  struct Row {
    RowState state = RowState::kEmpty;
    BoundProgram* bound = nullptr;      // for its shape
    std::vector<at::Tensor> held;       // by slot of the program
    ActivationPool::Transfer transfer;  // what is in the pool
  };

  // The step of a microbatch index, and its index within that step.
  std::int64_t StepOf(int row) const { return step_ + row / options_.microbatches; }
  int InStep(int row) const {
    return options_.chain * options_.microbatches + row % options_.microbatches;
  }
  // For the last completed step, by microbatch index; for the first step if none is complete.
  std::span<const float> OwnLosses() const {
    const std::int64_t rows =
        (weights_.updates() - updates_before_) * options_.versions.microbatches_per_update;
    const std::size_t step =
        std::clamp<std::int64_t>(rows / options_.microbatches, 1, options_.steps) - 1;
    const std::size_t count = options_.microbatches;
    return std::span(losses_).subspan(step * count, count);
  }
  void UseVersionOf(int row) {
    if (options_.versions.older == 0) return;
    const std::int64_t run_row = step_ * options_.microbatches + row;
    weights_.Use(std::max(first_update_, options_.versions.VersionOf(run_row)));
  }
  // Outputs after the first are keys and values.
  static std::size_t KeptBy(std::span<const StageProgram> programs) {
    return programs.size() == 1 ? 0 : programs.front().outputs.size() - 1;
  }
  static at::Tensor& At(Row& row, int place) { return row.held[place]; }
  // The program for the shape that the stage was created for.
  const StageProgram& Expected() const { return programs_.front()->program; }

  void SeedRandom(const StageProgram& program, int row, Op op) {
    if (!program.random) return;
    binding_.generator.set_current_seed(SeedOfRun(options_.seed, StepOf(row), InStep(row), op));
  }

  void DropTransfers() {
    if (!options_.pool) return;
    for (Row& row : rows_) options_.pool->Drop(row.transfer);
  }
  bool IsRecomputed(int row) const {
    return !options_.recomputed.empty() && options_.recomputed[row];
  }
  // An F that will run again keeps only its inputs.
  void HoldInputsAlone(Row& row) {
    for (at::Tensor& value : row.held) value.reset();
    for (std::size_t i = 0; i < given_.size(); ++i) {
      At(row, row.bound->program.inputs[i].place) = std::move(given_[i]);
    }
  }
  void Recompute(Row& row, int number) {
    const StageProgram& program = row.bound->program;
    UseVersionOf(number);
    SeedRandom(program, number, Op::kForward);
    for (at::Tensor& result : row.bound->forward.Run(row.held)) result.reset();
    activation_bytes_ += program.saved_bytes - row.bound->input_bytes;
  }
  // Returns the microbatch, which must be in state `from`, and moves it to state `to`.
  Row& Enter(int number, const char* action, RowState from, RowState to) {
    PENSTOCK_CHECK(number >= 0 && Index(number) < rows_.size(),
                   "{} of microbatch {}: a step has {}", action, number, rows_.size());
    Row& row = rows_[number];
    PENSTOCK_CHECK(row.state == from, "{} of microbatch {}, which {}", action, number,
                   NameOf(row.state));
    row.state = to;
    UseVersionOf(number);
    return row;
  }

  // Collects the inputs of the forward, which determine its program.
  Row& BeginForward(int number, Message input) {
    Row& row = Enter(number, "F", RowState::kEmpty, RowState::kForwardDone);
    TakeInputs(number, std::move(input));
    row.bound = &ProgramFor(number);
    const StageProgram& program = row.bound->program;
    row.held.resize(program.slots);
    for (std::size_t i = 0; i < given_.size(); ++i) {
      at::Tensor& held = At(row, program.inputs[i].place);
      held = given_[i];
      if (!IsRecomputed(number)) given_[i].reset();
    }
    SeedRandom(program, number, Op::kForward);
    return row;
  }

  void EndForward(int number, std::span<at::Tensor> results, Outlet& output) {
    Row& row = rows_[number];
    if (IsRecomputed(number)) HoldInputsAlone(row);
    activation_bytes_ +=
        IsRecomputed(number) ? row.bound->input_bytes : row.bound->program.saved_bytes;
    const std::size_t leaving = results.size() - slices_.tensors();
    if (options_.last) {
      losses_[number] =
          loss_shares_[slices_.SliceOf(number)] * *results.front().const_data_ptr<float>();
      results.front().reset();
    } else {
      output.Send(ToMessage(results.first(leaving)));
    }
    slices_.Keep(number, results.subspan(leaving));
  }

  Row& BeginBackward(int number, Message output_gradient) {
    Row& row = Enter(number, "backward", RowState::kForwardDone, RowState::kInputDone);
    TakeOutputGradients(number, std::move(output_gradient));
    return row;
  }

  // For B, which includes the weight gradients.
  void EndBackward(Row& row, std::span<at::Tensor> input_gradients, Outlet& output) {
    row.state = RowState::kEmpty;
    activation_bytes_ -= row.bound->program.saved_bytes;
    if (!options_.first) output.Send(ToMessage(input_gradients));
  }

  // Created when two programs meet for the first time.
  BoundPair& PairOf(const BoundProgram& forward, const CompiledStage& other,
                    const BoundProgram& backward) {
    std::unique_ptr<BoundPair>& pair = pairs_[{&forward, &backward}];
    if (!pair) {
      pair = std::make_unique<BoundPair>(forward, binding_, backward, other.binding_);
    }
    return *pair;
  }

  // Fills given_: the message of the previous stage or the batch's tokens, the state of earlier
  // slices, and then the targets.
  void TakeInputs(int row, Message input) {
    const BoundProgram& expected = *programs_[slices_.SliceOf(row)];
    given_.resize(expected.input_types.size());
    std::span<at::Tensor> given = given_;
    if (options_.last) {
      given.back() = source_.targets(StepOf(row), InStep(row)).contiguous();
      given = given.first(given.size() - 1);
    }
    const std::size_t sent = given.size() - slices_.Earlier(row);
    slices_.Give(row, given.subspan(sent));
    given = given.first(sent);
    const auto types = std::span<const TensorType>(expected.input_types).first(sent);
    if (options_.first) {
      given.front() = source_.tokens(StepOf(row), InStep(row)).contiguous();
    } else {
      FromMessage(std::move(input), types, given);
    }
  }

  // Moves the gradients from the next stage and from later slices to their slots.
  void TakeOutputGradients(int number, Message output_gradients) {
    Row& row = rows_[number];
    const std::span<const TensorType> types = row.bound->gradient_types;
    gradients_given_.resize(types.size());
    const std::span<at::Tensor> given = gradients_given_;
    const std::size_t sent = types.size() - slices_.Gradients(number);
    if (!options_.last) {
      FromMessage(std::move(output_gradients), types.first(sent), given.first(sent));
    }
    activation_bytes_ += slices_.TakeGradients(number, given.subspan(sent));
    for (std::size_t i = 0; i < gradients_given_.size(); ++i) {
      at::Tensor gradient = std::move(gradients_given_[i]);
      const int place = row.bound->gradient_places[i];
      if (place >= 0) At(row, place) = std::move(gradient);
    }
  }

  // Returns the first tensor of given_ that does not have the type of the program's input.
  std::optional<std::size_t> Misfit(const BoundProgram& bound) const {
    if (given_.size() != bound.input_types.size()) return 0;
    for (std::size_t i = 0; i < given_.size(); ++i) {
      const TensorType& type = bound.input_types[i];
      if (given_[i].sizes() != c10::IntArrayRef(type.sizes) ||
          given_[i].scalar_type() != type.dtype) {
        return i;
      }
    }
    return {};
  }

  // Compiles a program now if given_ has new shapes.
  BoundProgram& ProgramFor(int row) {
    for (const auto& bound : programs_) {
      if (!Misfit(*bound)) return *bound;
    }
    const BoundProgram& expected = *programs_[slices_.SliceOf(row)];
    const std::size_t input = *Misfit(expected);
    const auto fail = [&](const std::string& reason) {
      throw std::runtime_error(fmt::format("step {} microbatch {}: input {} instead of {}: {}",
                                           step_, row, PrintType(TypeOf(given_[input])),
                                           PrintType(expected.input_types[input]), reason));
    };
    if (options_.slices() > 1) fail("slices have a fixed shape");
    StageExamples examples;
    for (std::size_t i = 0; i < given_.size(); ++i) {
      const StagePort& port = Expected().inputs[i];
      if (given_[i].scalar_type() != port.type.dtype) fail("another dtype");
      // Tensors of a run have no gradient, but a copy can.
      examples.inputs.push_back(given_[i].clone().requires_grad_(port.has_gradient));
    }
    if (options_.last) {
      examples.targets = std::move(examples.inputs.back());
      examples.inputs.pop_back();
    }
    if (programs_.size() == kMostShapes) fail("too many shapes");
    auto program = recompile_(examples);
    if (!program) fail(program.error().message);
    programs_.push_back(std::make_unique<BoundProgram>(*std::move(program), binding_));
    return *programs_.back();
  }

  BatchSource source_;
  TorchStageOptions options_;
  Update update_;
  Recompile recompile_;
  std::vector<Row> rows_;
  SliceState slices_;
  std::vector<float> losses_;       // by microbatch index; last stages only
  std::vector<float> loss_shares_;  // by slice: the weight of its loss
  StageWeights weights_;
  GraphBinding binding_;
  // One per shape, the expected one first; or one per slice.
  std::vector<std::unique_ptr<BoundProgram>> programs_;
  // Pairs of one of these and a backward of a stage of the rank.
  std::map<std::pair<const BoundProgram*, const BoundProgram*>, std::unique_ptr<BoundPair>> pairs_;
  std::vector<at::Tensor> given_;            // inputs of the current F; empty otherwise
  std::vector<at::Tensor> gradients_given_;  // gradients of the current backward; empty otherwise
  std::int64_t step_ = 0;
  std::int64_t updates_before_ = 0;  // the current step
  std::int64_t first_update_ = -1;   // of the run; -1 before it
  std::int64_t activation_bytes_ = 0;
  std::atomic<std::int64_t> offloaded_bytes_ = 0;
};

}  // namespace

Result<std::unique_ptr<TorchStage>> TorchStage::Make(const std::shared_ptr<StageModule>& module,
                                                     const StageExamples& examples,
                                                     BatchSource source,
                                                     const TorchStageOptions& options,
                                                     Update update) {
  const std::shared_ptr<StageModule> captured = options.working ? options.working : module;
  PENSTOCK_TRY(std::vector<StageProgram> programs, CompileSlices(captured, examples, options));
  const Recompile recompile = [captured, options](const StageExamples& like) {
    return CompileSlice(captured, like, options, 0);
  };
  return std::unique_ptr<TorchStage>(std::make_unique<CompiledStage>(
      std::move(programs), ParametersOf(*captured), ParametersOf(*module), std::move(source),
      options, std::move(update), recompile));
}

}  // namespace penstock
