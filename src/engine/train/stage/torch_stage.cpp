#include "train/stage/torch_stage.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <span>

#include "base/index.h"
#include "graph/count_collectives.h"
#include "graph/device/device_queue.h"
#include "graph/ir/print.h"
#include "graph/ops/c10d_groups.h"
#include "graph/run/interpret.h"
#include "model/model.h"
#include "schedule/deps.h"
#include "train/message/tensor_message.h"
#include "train/offload/activation_pool.h"
#include "train/stage/bound_pair.h"
#include "train/stage/bound_program.h"
#include "train/stage/device_clock.h"
#include "train/stage/microbatch_state.h"
#include "train/stage/slice_state.h"
#include "train/stage/stage_spec.h"
#include "train/stage/stage_weights.h"
#include "train/stage/torch_vocabulary.h"
#include "train/weights/step_losses.h"

namespace penstock {
namespace {

class CompiledStage final : public TorchStage {
 public:
  // `programs` has one entry per slice or length. The stage computes with `working` and trains
  // `masters`, which are the same tensors or casts of each other. A last stage reads `targets`
  // tensors in addition to its inputs.
  CompiledStage(std::vector<StageProgram> programs, std::span<const NamedTensor> working,
                std::span<const NamedTensor> masters, BatchSource source,
                const TorchStageOptions& options, std::size_t targets, Update update)
      : source_(std::move(source)),
        options_(options),
        schedule_(options_.schedule),
        targets_(targets),
        update_(std::move(update)),
        microbatches_(Index(options.schedule.microbatches) * Index(options.schedule.steps)),
        slices_(options.lengths.slices(), static_cast<int>(microbatches_.size()),
                SliceTensors(options, programs.front())),
        program_of_(options.ProgramsOfMicrobatches()),
        losses_(options.schedule.last ? microbatches_.size() : 0, options.rank.device()),
        weights_(working, masters, programs.front(), options, losses_),
        binding_{weights_.values(), weights_.gradients(), MakeGenerator(options.rank.device()),
                 options.random.first_op, options.rank.device()} {
    if (options.rank.queue) clock_.emplace(options.rank.device());
    binding_.groups = weights_.groups();
    for (StageProgram& program : programs) {
      programs_.push_back(std::make_unique<BoundProgram>(
          std::move(program), binding_, options_.node_costs, options_.rank.recorder));
    }
    for (int program = 0; program < options.lengths.CountPrograms(); ++program) {
      loss_shares_.push_back(static_cast<float>(ShareOfProgram(options, program)));
    }
    for (MicrobatchState& state : microbatches_) state.slots.resize(Expected().slots);
    if (options_.rank.vocabulary) options_.rank.vocabulary->Bind(weights_.gradients());
  }

  // Waits for what a failed run has started, since it uses tensors of this stage.
  ~CompiledStage() override {
    DropTransfers();
    if (options_.rank.queue) options_.rank.queue->Synchronize();
  }
  CompiledStage(const CompiledStage&) = delete;
  CompiledStage& operator=(const CompiledStage&) = delete;

  void BeginStep(std::int64_t step) override {
    if (options_.rank.queue) options_.rank.queue->Enter();
    for (std::size_t index = 0; index < microbatches_.size(); ++index) {
      const MicrobatchPhase phase = microbatches_[index].phase;
      PENSTOCK_CHECK(phase == MicrobatchPhase::kEmpty, "step {} begins while microbatch {} {}",
                     step, index, PhaseName(phase));
    }
    losses_.Clear();
    step_ = step;
    if (options_.rank.vocabulary) options_.rank.vocabulary->BeginStep(step);
    updates_before_ = step * schedule_.microbatches / schedule_.versions.microbatches_per_update;
    if (first_update_ < 0) {
      first_update_ = updates_before_;
      weights_.versions().StartAt(first_update_);
    }
  }

  void Forward(int microbatch, Message input, Outlet& output) override {
    MicrobatchState& state = BeginForward(microbatch, std::move(input));
    EndForward(microbatch, state.bound->forward.Run(state.slots), output);
  }

  void Backward(int microbatch, Message output_gradient, Outlet& input_gradient) override {
    RunBackwardInput(microbatch, std::move(output_gradient), input_gradient, /*with_weight=*/true);
    RunBackwardWeight(microbatch, /*with_input=*/true);
  }
  void BackwardInput(int microbatch, Message output_gradient, Outlet& input_gradient) override {
    RunBackwardInput(microbatch, std::move(output_gradient), input_gradient, false);
  }
  void BackwardWeight(int microbatch) override { RunBackwardWeight(microbatch, false); }

  std::int64_t Overlap(StageCall first, Stage& other, StageCall second) override {
    auto* const other_stage = dynamic_cast<CompiledStage*>(&other);
    const bool forward_first = first.op == Op::kForward;
    StageCall& forward = forward_first ? first : second;
    StageCall& backward = forward_first ? second : first;
    CompiledStage* const forward_stage = forward_first ? this : other_stage;
    CompiledStage* const backward_stage = forward_first ? other_stage : this;
    // A stage with several weight versions has only one in use at a time.
    const bool two_versions = other_stage == this && schedule_.versions.older > 0;
    // Ranks order the nodes of a pair by their sizes, and must start collectives in one order.
    if (other_stage == nullptr || options_.lengths.slices() > 1 || backward.op != Op::kBackward ||
        two_versions || options_.compile.ranks_differ ||
        !BoundPair::HidesExchanges(forward_stage->Expected(), backward_stage->Expected())) {
      return Stage::Overlap(std::move(first), other, std::move(second));
    }
    MicrobatchState& forward_state =
        forward_stage->BeginForward(forward.microbatch, std::move(forward.input));
    backward_stage->BeginGradients();
    MicrobatchState& backward_state =
        backward_stage->BeginBackward(backward.microbatch, std::move(backward.input));
    const BoundPair::Leaving leaving =
        forward_stage->PairOf(*forward_state.bound, *backward_stage, *backward_state.bound)
            .Run(forward_state.slots, backward_state.slots);
    const auto end_part = [&](bool is_forward) {
      if (is_forward) {
        forward_stage->EndForward(forward.microbatch, leaving.outputs, forward.output);
      } else {
        backward_stage->EndBackward(backward_state, leaving.input_gradients, backward.output);
      }
    };
    end_part(forward_first);
    const std::int64_t bytes_between = activation_bytes_;
    end_part(!forward_first);
    return bytes_between;
  }

  void Step() override {
    changed_in_ = step_;
    weights_.Step(update_);
  }
  void TryStep() override {
    changed_in_ = step_;
    weights_.TryStep(update_);
  }
  void EndStep() override {
    if (clock_) clock_->End();
  }
  StageClock* clock() override { return clock_ ? &*clock_ : nullptr; }
  void AwaitInput(Message& input) override {
    AwaitMessage(input, options_.rank.device(), options_.rank.peers.get());
  }
  StageUpdate& update() override { return weights_; }
  void DropForwards() override {
    DropTransfers();
    for (MicrobatchState& state : microbatches_) {
      state.phase = MicrobatchPhase::kEmpty;
      for (at::Tensor& value : state.slots) value.reset();
    }
    slices_.Clear();
    activation_bytes_ = 0;
    if (ShardCollectives* shards = weights_.collectives()) shards->Reshard();
  }
  void DropForward(int microbatch) override {
    MicrobatchState& state = Enter(microbatch, "F without a backward",
                                   MicrobatchPhase::kForwardDone, MicrobatchPhase::kEmpty);
    for (at::Tensor& value : state.slots) value.reset();
    activation_bytes_ -= state.bound->program.saved_bytes;
  }
  bool ForgetStep(std::int64_t step) override {
    if (changed_in_ == step) return false;
    if (options_.rank.queue) options_.rank.queue->Synchronize();
    DropForwards();
    weights_.Forget();
    return true;
  }
  bool Keeps(WeightPolicy policy) const override { return policy == schedule_.weights; }

  // OFFLOAD and RELOAD move the values that a microbatch keeps alive between its actions. RECOMPUTE
  // computes them again from the inputs that F kept, with the random numbers of F.
  bool DoesSideWork(Op op) const override {
    if (IsVocabulary(op)) return options_.rank.vocabulary != nullptr;
    if (op == Op::kOffload || op == Op::kReload) return options_.rank.pool != nullptr;
    if (op == Op::kRecompute) return !schedule_.recomputed.empty();
    return options_.replicas.zero >= (op == Op::kReduceGrad ? 2 : 3);
  }
  void DoSideWork(Op op, int microbatch) override {
    if (IsVocabulary(op)) return options_.rank.vocabulary->Run(op, microbatch);
    if (op == Op::kUnshard) return weights_.collectives()->Unshard();
    if (op == Op::kReshard) return weights_.collectives()->Reshard();
    if (op == Op::kReduceGrad) return weights_.StartReduction();
    MicrobatchState& state = Enter(microbatch, "side work", MicrobatchPhase::kForwardDone,
                                   MicrobatchPhase::kForwardDone);
    if (op == Op::kOffload) {
      options_.rank.pool->Offload(state.slots, offloaded_bytes_, state.transfer);
    } else if (op == Op::kReload) {
      options_.rank.pool->Reload(state.transfer);
    } else {
      Recompute(state, microbatch);
    }
  }
  bool Await(Op op, int microbatch) override {
    if (options_.rank.pool && (MakesInputGradient(op) || op == Op::kRecompute)) {
      MicrobatchState& state = microbatches_[microbatch];
      options_.rank.pool->Await(state.slots, state.transfer);
    }
    ShardCollectives* const shards = weights_.collectives();
    if (shards == nullptr) return true;
    return op == Op::kStep ? shards->FinishReduction() : shards->AwaitWeights();
  }
  void Abort(const Error& reason) override {
    if (ShardCollectives* shards = weights_.collectives()) shards->Abort(reason);
    for (const auto& [number, group] : weights_.groups()) group->group().Abort(reason);
    if (options_.rank.c10d) options_.rank.c10d->Abort(reason);
  }
  void StartGather() override { weights_.StartGather(); }
  void FinishGather(bool keep) override { weights_.FinishGather(keep); }
  const std::vector<NamedTensor>& AllExperts() const override { return weights_.AllExperts(); }
  void DropGathered() override { weights_.DropGathered(); }

  VocabularyShard* vocabulary() override { return options_.rank.vocabulary.get(); }
  std::int64_t ActivationBytes() const override {
    return activation_bytes_ + (options_.rank.vocabulary ? options_.rank.vocabulary->bytes() : 0);
  }
  std::int64_t OffloadedBytes() const override {
    return offloaded_bytes_.load(std::memory_order_relaxed);
  }
  std::vector<NamedParameter>& Parameters() override { return weights_.parameters(); }
  std::vector<NamedParameter> Restored() override { return weights_.Restored(); }
  void Restart() override { first_update_ = -1; }
  void ReadWeights() override { weights_.SetWorking(); }
  void SetWeights(std::span<const at::Tensor> whole) override { weights_.SetWeights(whole); }
  double StepLoss() const override {
    if (!schedule_.last) return 0;
    // Adds in the order of microbatch indices, so that the sum is the same for every schedule.
    double sum = 0;
    for (int chain = 0; chain < options_.replicas.count; ++chain) {
      for (const float loss : LossesOf(chain)) sum += loss;
    }
    return sum / (schedule_.microbatches * options_.replicas.count);
  }
  std::vector<float> MicrobatchLosses() const override {
    std::vector<float> all;
    for (int chain = 0; schedule_.last && chain < options_.replicas.count; ++chain) {
      const std::span<const float> losses = LossesOf(chain);
      all.insert(all.end(), losses.begin(), losses.end());
    }
    return all;
  }
  void AddShape(std::int64_t shape, StageProgram program) override {
    weights_.AddProgram(program);
    shapes_[shape] = std::make_unique<BoundProgram>(std::move(program), binding_,
                                                    options_.node_costs, options_.rank.recorder);
  }
  void DropShape(std::int64_t shape) override {
    const auto dropped = shapes_.extract(shape);
    if (dropped.empty()) return;
    const std::int64_t id = dropped.mapped()->id;
    std::erase_if(pairs_, [id](const auto& pair) {
      return pair.first.first == id || pair.first.second == id;
    });
  }
  std::int64_t SavedBytes() const override { return Expected().saved_bytes; }
  CollectivesOfStage CountedCollectives() const override { return CountCollectives(Expected()); }
  std::vector<at::Tensor> ExampleOutputs() const override {
    if (schedule_.last) return {};
    const std::span<const StagePort> all = Expected().outputs;
    return ExamplesOf(all.first(all.size() - slices_.tensors()), options_.rank.device());
  }

 private:
  // The step of a microbatch index, and its index within that step.
  std::int64_t StepOf(int microbatch) const { return step_ + microbatch / schedule_.microbatches; }
  int InStep(int microbatch) const {
    return options_.replicas.chain * schedule_.microbatches + microbatch % schedule_.microbatches;
  }
  // Returns the losses of the last completed step by microbatch index, or of the first step if none
  // is complete.
  std::span<const float> OwnLosses() const {
    const std::int64_t done = (weights_.versions().updates() - updates_before_) *
                              schedule_.versions.microbatches_per_update;
    const std::size_t step =
        std::clamp<std::int64_t>(done / schedule_.microbatches, 1, schedule_.steps) - 1;
    const std::size_t count = schedule_.microbatches;
    return losses_.Read().subspan(step * count, count);
  }
  std::span<const float> LossesOf(int chain) const {
    return chain == options_.replicas.chain ? OwnLosses() : weights_.LossesOf(chain);
  }
  void UseVersionOf(int microbatch) {
    if (schedule_.versions.older == 0) return;
    const std::int64_t of_run = step_ * schedule_.microbatches + microbatch;
    weights_.versions().Use(std::max(first_update_, schedule_.versions.VersionOf(of_run)));
  }
  // Returns the number of keys and values of one slice: all outputs after the first.
  static std::size_t SliceTensors(const TorchStageOptions& options, const StageProgram& program) {
    return options.lengths.slices() == 1 ? 0 : program.outputs.size() - 1;
  }
  // The program that the stage was created with: for the longest length of several.
  const StageProgram& Expected() const { return programs_.front()->program; }
  std::size_t ProgramOf(int microbatch) const {
    return program_of_[Index(microbatch % schedule_.microbatches)];
  }
  void SeedRandom(const StageProgram& program, int microbatch) {
    if (!program.random) return;
    binding_.generator.set_current_seed(
        SeedOfRun(options_.random.seed, StepOf(microbatch), InStep(microbatch)));
  }

  void DropTransfers() {
    if (!options_.rank.pool) return;
    for (MicrobatchState& state : microbatches_) options_.rank.pool->Drop(state.transfer);
  }
  bool IsRecomputed(int microbatch) const {
    return !schedule_.recomputed.empty() && schedule_.recomputed[microbatch];
  }
  // For an F that will run again.
  void KeepOnlyInputs(MicrobatchState& state) {
    for (at::Tensor& value : state.slots) value.reset();
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      state.slots[state.bound->program.inputs[i].slot] = std::move(inputs_[i]);
    }
  }
  void Recompute(MicrobatchState& state, int microbatch) {
    const StageProgram& program = state.bound->program;
    UseVersionOf(microbatch);
    SeedRandom(program, microbatch);
    for (at::Tensor& result : state.bound->forward.Run(state.slots)) result.reset();
    activation_bytes_ += program.saved_bytes - state.bound->input_bytes;
  }
  // Moves the microbatch to phase `to` and returns its state. Requires: it is in phase `from`.
  MicrobatchState& Enter(int microbatch, const char* action, MicrobatchPhase from,
                         MicrobatchPhase to) {
    PENSTOCK_CHECK(microbatch >= 0 && Index(microbatch) < microbatches_.size(),
                   "{} of microbatch {}: a step has only {}", action, microbatch,
                   microbatches_.size());
    MicrobatchState& state = microbatches_[microbatch];
    PENSTOCK_CHECK(state.phase == from, "{} of microbatch {}, which {}", action, microbatch,
                   PhaseName(state.phase));
    state.phase = to;
    UseVersionOf(microbatch);
    return state;
  }

  // Prepares F: reads its inputs, whose shapes determine the program.
  MicrobatchState& BeginForward(int microbatch, Message input) {
    MicrobatchState& state =
        Enter(microbatch, "F", MicrobatchPhase::kEmpty, MicrobatchPhase::kForwardDone);
    state.bound = &ProgramFor(microbatch);
    TakeInputs(microbatch, std::move(input));
    CheckInputs(*state.bound, microbatch);
    const StageProgram& program = state.bound->program;
    state.slots.resize(program.slots);
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      state.slots[program.inputs[i].slot] = inputs_[i];
      if (!IsRecomputed(microbatch)) inputs_[i].reset();
    }
    SeedRandom(program, microbatch);
    return state;
  }

  void EndForward(int microbatch, std::span<at::Tensor> results, Outlet& output) {
    MicrobatchState& state = microbatches_[microbatch];
    if (IsRecomputed(microbatch)) KeepOnlyInputs(state);
    activation_bytes_ +=
        IsRecomputed(microbatch) ? state.bound->input_bytes : state.bound->program.saved_bytes;
    if (!state.bound->program.updated_buffers.empty()) changed_in_ = step_;
    results = state.bound->SetBuffers(results);
    const std::size_t leaving = results.size() - slices_.tensors();
    if (schedule_.last) {
      losses_.Set(Index(microbatch), loss_shares_[ProgramOf(microbatch)], results.front());
      results.front().reset();
      const std::span<at::Tensor> reports = results.first(leaving).subspan(1);
      if (source_.take_reports && !reports.empty()) {
        source_.take_reports(StepOf(microbatch), InStep(microbatch), reports);
      }
      for (at::Tensor& report : reports) report.reset();
    } else {
      output.Send(ToMessage(results.first(leaving)));
    }
    slices_.Store(microbatch, results.subspan(leaving));
  }

  // Runs I, or `with_weight` the first half of B, which may add weight gradients, too.
  void RunBackwardInput(int microbatch, Message output_gradient, Outlet& input_gradient,
                        bool with_weight) {
    MicrobatchState& state = BeginBackward(microbatch, std::move(output_gradient));
    BoundProgram& bound = *state.bound;
    const bool interleaved = with_weight && bound.interleaved_input;
    if (interleaved) BeginGradients();
    SeedRandom(bound.program, microbatch);
    BoundPiece& piece = interleaved ? *bound.interleaved_input : bound.backward_input;
    const std::span<at::Tensor> results = piece.Run(state.slots);
    activation_bytes_ += bound.program.live_bytes - bound.program.saved_bytes;
    const std::size_t leaving = results.size() - slices_.Earlier(microbatch);
    if (!schedule_.first) input_gradient.Send(ToMessage(results.first(leaving)));
    activation_bytes_ += slices_.AddGradients(microbatch, results.subspan(leaving));
  }
  // Runs W, or `with_input` the second half of B.
  void RunBackwardWeight(int microbatch, bool with_input) {
    MicrobatchState& state =
        Enter(microbatch, "W", MicrobatchPhase::kInputDone, MicrobatchPhase::kEmpty);
    BoundProgram& bound = *state.bound;
    BeginGradients();
    SeedRandom(bound.program, microbatch);
    (with_input && bound.interleaved_weight ? *bound.interleaved_weight : bound.backward_weight)
        .Run(state.slots);
    activation_bytes_ -= bound.program.live_bytes;
  }
  void BeginGradients() {
    if (ShardCollectives* shards = weights_.collectives()) shards->BeginGradients();
  }

  MicrobatchState& BeginBackward(int microbatch, Message output_gradient) {
    MicrobatchState& state =
        Enter(microbatch, "backward", MicrobatchPhase::kForwardDone, MicrobatchPhase::kInputDone);
    TakeOutputGradients(microbatch, std::move(output_gradient));
    return state;
  }

  // Ends a B, which has computed the weight gradients too.
  void EndBackward(MicrobatchState& state, std::span<at::Tensor> input_gradients, Outlet& output) {
    state.phase = MicrobatchPhase::kEmpty;
    activation_bytes_ -= state.bound->program.saved_bytes;
    if (!schedule_.first) output.Send(ToMessage(input_gradients));
  }

  // Returns the pair of two programs. Compiles it on the first call.
  BoundPair& PairOf(const BoundProgram& forward, const CompiledStage& other,
                    const BoundProgram& backward) {
    std::unique_ptr<BoundPair>& pair = pairs_[{forward.id, backward.id}];
    if (!pair) {
      pair = std::make_unique<BoundPair>(forward, binding_, backward, other.binding_,
                                         options_.node_costs);
    }
    return *pair;
  }

  // Fills inputs_ with the message of the previous stage or the batch's tokens, then the keys and
  // values of earlier slices, then the targets.
  void TakeInputs(int microbatch, Message input) {
    const BoundProgram& expected = *microbatches_[microbatch].bound;
    inputs_.resize(expected.input_types.size());
    std::span<at::Tensor> inputs = inputs_;
    if (schedule_.last) {
      const std::size_t others = inputs.size() - targets_;
      source_.ReadTargets(StepOf(microbatch), InStep(microbatch), inputs.subspan(others));
      ToDevice(inputs.subspan(others));
      inputs = inputs.first(others);
    }
    const std::size_t sent = inputs.size() - slices_.Earlier(microbatch);
    slices_.ReadEarlier(microbatch, inputs.subspan(sent));
    inputs = inputs.first(sent);
    const auto types = std::span<const TensorType>(expected.input_types).first(sent);
    if (schedule_.first) {
      source_.ReadInputs(StepOf(microbatch), InStep(microbatch), inputs);
      ToDevice(inputs);
    } else {
      FromMessage(std::move(input), types, inputs, options_.rank.device(),
                  options_.rank.peers.get());
    }
  }

  // Copies what a source has read on the host. The copy of pageable memory is made when the call
  // returns, so the source may fill it again.
  void ToDevice(std::span<at::Tensor> tensors) const {
    for (at::Tensor& tensor : tensors) {
      if (!options_.rank.queue || tensor.device() == options_.rank.device()) continue;
      tensor = tensor.to(options_.rank.device(), /*non_blocking=*/!tensor.is_pinned());
    }
  }

  // Moves the gradients of the next stage and of later slices to their slots.
  void TakeOutputGradients(int microbatch, Message output_gradients) {
    MicrobatchState& state = microbatches_[microbatch];
    const std::span<const TensorType> types = state.bound->gradient_types;
    output_gradients_.resize(types.size());
    const std::span<at::Tensor> gradients = output_gradients_;
    const std::size_t sent = types.size() - slices_.Gradients(microbatch);
    if (!schedule_.last) {
      FromMessage(std::move(output_gradients), types.first(sent), gradients.first(sent),
                  options_.rank.device(), options_.rank.peers.get());
    }
    activation_bytes_ += slices_.TakeGradients(microbatch, gradients.subspan(sent));
    for (std::size_t i = 0; i < output_gradients_.size(); ++i) {
      at::Tensor gradient = std::move(output_gradients_[i]);
      const int slot = state.bound->gradient_slots[i];
      if (slot >= 0) state.slots[slot] = std::move(gradient);
    }
  }

  // Returns the program of a microbatch's shape, or of its slice or length.
  BoundProgram& ProgramFor(int microbatch) {
    const std::int64_t shape =
        source_.shape ? source_.shape(StepOf(microbatch), InStep(microbatch)) : 0;
    if (shape == 0) return *programs_[ProgramOf(microbatch)];
    const auto found = shapes_.find(shape);
    PENSTOCK_CHECK(found != shapes_.end(), "the stage has no program for shape {}", shape);
    return *found->second;
  }
  void CheckInputs(const BoundProgram& bound, int microbatch) const {
    const std::optional<std::size_t> input = bound.FirstMismatch(inputs_);
    if (!input) return;
    throw std::runtime_error(fmt::format("step {} microbatch {}: input {} instead of {}", step_,
                                         microbatch, PrintType(TypeOf(inputs_[*input])),
                                         PrintType(bound.input_types[*input])));
  }

  BatchSource source_;
  TorchStageOptions options_;
  const StageSchedule& schedule_;  // of options_
  std::size_t targets_;
  Update update_;
  std::vector<MicrobatchState> microbatches_;
  SliceState slices_;
  std::vector<std::size_t> program_of_;  // by microbatch index of a step
  StepLosses losses_;                    // by microbatch index; last stages only
  std::vector<float> loss_shares_;       // by program: the weight of its loss
  StageWeights weights_;
  GraphBinding binding_;
  // One, or one per slice or length.
  std::vector<std::unique_ptr<BoundProgram>> programs_;
  std::map<std::int64_t, std::unique_ptr<BoundProgram>> shapes_;  // see AddShape
  // A forward of this stage and a backward of any stage of the rank.
  std::map<std::pair<std::int64_t, std::int64_t>, std::unique_ptr<BoundPair>> pairs_;  // by ids
  std::vector<at::Tensor> inputs_;            // of the current F; undefined otherwise
  std::vector<at::Tensor> output_gradients_;  // of the current backward; undefined otherwise
  std::optional<DeviceClock> clock_;          // on a device
  std::int64_t step_ = 0;
  std::int64_t updates_before_ = 0;  // before the current step
  std::int64_t first_update_ = -1;   // of the run; -1: not known yet
  std::int64_t changed_in_ = -1;     // the last step that has changed weights or buffers
  std::int64_t activation_bytes_ = 0;
  std::atomic<std::int64_t> offloaded_bytes_ = 0;
};

}  // namespace

c10::Device StageRank::device() const { return queue ? queue->device() : c10::Device(c10::kCPU); }

Result<std::unique_ptr<TorchStage>> TorchStage::Make(const std::shared_ptr<StageModule>& module,
                                                     const StageExamples& examples,
                                                     BatchSource source,
                                                     const TorchStageOptions& options,
                                                     Update update) {
  const std::shared_ptr<StageModule> weights = options.working ? options.working : module;
  PENSTOCK_TRY(std::vector<StageProgram> programs, CompileSlices(weights, examples, options));
  std::vector<NamedTensor> working = ParametersOf(*weights), masters = ParametersOf(*module);
  if (const TorchVocabulary* const tables = options.rank.vocabulary.get()) {
    working.insert(working.end(), tables->working().begin(), tables->working().end());
    masters.insert(masters.end(), tables->masters().begin(), tables->masters().end());
  }
  return std::unique_ptr<TorchStage>(
      std::make_unique<CompiledStage>(std::move(programs), working, masters, std::move(source),
                                      options, examples.targets.size(), std::move(update)));
}

}  // namespace penstock
