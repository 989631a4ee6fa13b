#include "runtime/executor/executor.h"

#include <chrono>
#include <utility>

#include "base/index.h"
#include "schedule/text/text.h"

namespace penstock {
namespace {

std::int64_t Now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// `bytes` are the stage's activations in both memories.
void SetActivations(Stamp& stamp, const Stage& stage, std::int64_t bytes) {
  stamp.offloaded_bytes = stage.OffloadedBytes();
  stamp.activation_bytes = bytes - stamp.offloaded_bytes;
}

}  // namespace

std::uint64_t Executor::Progress(std::int64_t round, std::size_t index, bool computing) {
  return (static_cast<std::uint64_t>(round) << kIndexBits) | (index << 1) | (computing ? 1U : 0U);
}

std::size_t Executor::IndexOf(std::uint64_t progress) {
  return (progress & ((std::uint64_t{1} << kIndexBits) - 1)) >> 1;
}

void Executor::SlotOutlet::SetSent() {
  if (!timed_) return;
  if (clock_ != nullptr) {
    clock_->Mark(mark_);
  } else {
    sent_ns_ = Now();
  }
}

void Executor::SlotOutlet::Send(Message message) {
  if (exchange_ != nullptr) {
    SetSent();
    std::exchange(exchange_, nullptr)->TakeOutput(entry_, round_, std::move(message));
    return;
  }
  if (slot_ < 0) {
    // The end of a chain may still send its gradient, which has no receiver.
    PENSTOCK_CHECK(!expected_, "an action sent two messages");
    return;
  }
  SetSent();
  transport_.Send(std::exchange(slot_, -1), round_, std::move(message));
}

Executor::Executor(const Binding& binding, int rank, std::function<void(std::int64_t step)> on_step,
                   Program program)
    : binding_(binding),
      rank_(rank),
      on_step_(std::move(on_step)),
      program_(std::move(program)),
      messages_(binding.schedule),
      outlets_{SlotOutlet(binding.transport), SlotOutlet(binding.transport)} {}

StageMethod Executor::StageMethodOf(Op op) const {
  if (op == Op::kStep && rule().steps_early()) {
    return [](Stage& stage, int, Message, Outlet&) { stage.TryStep(); };
  }
  return MethodOf(op);
}

Result<std::unique_ptr<Executor>> Executor::Bind(const Binding& binding, int rank,
                                                 std::function<void(std::int64_t step)> on_step) {
  PENSTOCK_TRY(Program program, MakeProgram(binding.schedule, rank));
  std::unique_ptr<Executor> executor(
      new Executor(binding, rank, std::move(on_step), std::move(program)));
  PENSTOCK_TRY_STATUS(executor->BindStages());
  PENSTOCK_TRY_STATUS(executor->BindActions());
  PENSTOCK_TRY_STATUS(executor->BindVocabulary());
  PENSTOCK_TRY_STATUS(executor->BindUpdates());
  executor->BindSteps();
  return executor;
}

Status Executor::BindStages() {
  const Schedule& schedule = binding_.schedule;
  for (const int stage : schedule.placement.stages_of(rank_)) {
    const std::size_t index = stage;
    if (index >= binding_.stages.size() || binding_.stages[index] == nullptr) {
      return InvalidArgument("rank {}: stage {} is missing", rank_, stage);
    }
    if (!binding_.stages[index]->Keeps(schedule.weights)) {
      return InvalidArgument(
          "rank {}: stage {} keeps one version of its weights, but the schedule needs several",
          rank_, stage);
    }
    stages_.push_back(binding_.stages[index]);
  }
  return {};
}

Status Executor::BindActions() {
  parts_.reserve(program_.size());
  actions_.reserve(program_.size());
  for (const auto& [part, position, ends_pair] : program_) {
    Stage* stage = binding_.stages[part.stage];
    if (!IsCompute(part.op) && part.op != Op::kStep && !stage->DoesSideWork(part.op)) {
      return InvalidArgument("rank {}, action {} ({}): the stage does not run {}", rank_, position,
                             ToText(part), OpText(part.op));
    }
    if (ends_pair) {
      actions_.back().parts = 2;
    } else {
      actions_.push_back({parts_.size(), 1});
    }
    parts_.push_back({StageMethodOf(part.op), stage, part.op, part.microbatch,
                      messages_.InSlot(part), messages_.OutSlot(part), Drops(part)});
  }
  return {};
}

bool Executor::Drops(const Part& part) const {
  return part.op == Op::kForward &&
         binding_.schedule.backward_of(part.stage) == StageBackward::kNone;
}

Status Executor::BindVocabulary() {
  const Schedule& schedule = binding_.schedule;
  if (!schedule.vocabulary) return {};
  VocabularyShard* const shard = stages_.front()->vocabulary();
  if (shard == nullptr) {
    return InvalidArgument(
        "rank {}: the schedule shards the vocabulary, but stage {} has no share of it", rank_,
        schedule.placement.stages_of(rank_).front());
  }
  vocabulary_ = std::make_unique<VocabularyExchange>(schedule, rank_, program_, messages_, *shard,
                                                     binding_.transport);
  return {};
}

bool Executor::Enter(const BoundAction& action, std::int64_t round,
                     std::array<Message, 2>& inputs) {
  for (std::size_t i = 0; i < action.parts; ++i) {
    const BoundPart& part = parts_[action.entry + i];
    if (i > 0) progress_.store(Progress(round, action.entry + i, false), std::memory_order_relaxed);
    const std::int64_t in_round = round + (part.in_again ? times_again_ : 0);
    if (part.in_slot >= 0 && !binding_.transport.Receive(part.in_slot, in_round, inputs[i])) {
      return false;
    }
    if (vocabulary_ && !vocabulary_->Receive(action.entry + i, in_round)) return false;
    stage_waits_.store(true, std::memory_order_relaxed);
    if (!part.stage->Await(part.op, part.microbatch)) return false;
    stage_waits_.store(false, std::memory_order_relaxed);
    outlets_[i].Open(part.out_slot, round + (part.out_again ? times_again_ : 0),
                     part.op == Op::kBackward, clock_, MarkOf(action.entry + i, Moment::kSent));
    if (vocabulary_ && vocabulary_->TakesOutput(action.entry + i)) {
      outlets_[i].OpenTo(*vocabulary_, action.entry + i);
    }
  }
  return true;
}

void Executor::RunOne(std::size_t entry, Message input, std::int64_t round) {
  const BoundPart& part = parts_[entry];
  Stamp& stamp = stamps_[entry];
  if (clock_ != nullptr) part.stage->AwaitInput(input);
  SetTime(entry, Moment::kStart, stamp.start_ns);
  if (vocabulary_ && vocabulary_->HasInput(entry)) input = vocabulary_->Input(entry);
  part.call(*part.stage, part.microbatch, std::move(input), outlets_[0]);
  if (part.drops) part.stage->DropForward(part.microbatch);
  if (IsVocabulary(part.op)) vocabulary_->Send(entry, round);
  SetTime(entry, Moment::kEnd, stamp.end_ns);
  stamp.sent_ns = outlets_[0].sent_ns();
  SetActivations(stamp, *part.stage, part.stage->ActivationBytes());
}

void Executor::RunPair(const BoundPart* parts, std::array<Message, 2>& inputs, Stamp* stamps) {
  const BoundPart& first = parts[0];
  const BoundPart& second = parts[1];
  const std::size_t first_entry = Index(parts - parts_.data());
  std::int64_t start = 0, end = 0;
  for (std::size_t i = 0; i < inputs.size() && clock_ != nullptr; ++i) {
    parts[i].stage->AwaitInput(inputs[i]);
  }
  SetTime(first_entry, Moment::kStart, start);
  for (std::size_t i = 0; i < inputs.size() && vocabulary_; ++i) {
    const std::size_t entry = first_entry + i;
    if (vocabulary_->HasInput(entry)) inputs[i] = vocabulary_->Input(entry);
  }
  const std::int64_t bytes_between = first.stage->Overlap(
      {first.op, first.microbatch, std::move(inputs[0]), outlets_[0]}, *second.stage,
      {second.op, second.microbatch, std::move(inputs[1]), outlets_[1]});
  for (const BoundPart* part : {&first, &second}) {
    if (part->drops) part->stage->DropForward(part->microbatch);
  }
  SetTime(first_entry, Moment::kEnd, end);
  SetActivations(stamps[0], *first.stage, bytes_between);
  SetActivations(stamps[1], *second.stage, second.stage->ActivationBytes());
  for (Stamp* stamp : {&stamps[0], &stamps[1]}) {
    stamp->start_ns = start;
    stamp->end_ns = end;
    stamp->sent_ns = 0;
  }
}

bool Executor::RunStep(std::int64_t round, std::int64_t step) {
  progress_.store(Progress(round, 0, false), std::memory_order_relaxed);
  for (Stage* stage : stages_) stage->BeginStep(step);
  clock_ = stages_.front()->clock();
  if (clock_ != nullptr) clock_->Begin(MarkOf(program_.size(), Moment::kStart));
  stamps_ = binding_.trace.Begin(rank_, round);
  const bool settles = rule().steps_early() && round > 0;
  if (settles && (!TakeShards(round - 1) || !RunEarlyForwards(round, step))) return false;
  std::size_t done = settles ? early_actions_ : 0;
  for (const BoundPoint& point : points_) {
    if (!RunActions(done, point.action, round)) return false;
    if (!AtPoint(point.point, round, step)) return false;
    done = point.action;
  }
  for (const BoundStep& made : steps_) {
    if (!RunActions(done, made.action, round)) return false;
    EndStepWithTimes();
    on_step_(step + made.step);
    done = made.action;
  }
  if (!RunActions(done, actions_.size(), round)) return false;
  EndStepWithTimes();
  binding_.trace.End(rank_, round);
  // So that weights are whole between steps.
  if (!rule().steps_early() && !TakeShards(round)) return false;
  EndStep();
  return true;
}

void Executor::EndStep() {
  for (Stage* stage : stages_) stage->EndStep();
}

void Executor::SetTime(std::size_t entry, Moment moment, std::int64_t& ns) {
  if (clock_ != nullptr) {
    clock_->Mark(MarkOf(entry, moment));
  } else {
    ns = Now();
  }
}

void Executor::EndStepWithTimes() {
  EndStep();
  if (clock_ == nullptr) return;
  for (const BoundAction& action : actions_) {
    const std::size_t first = action.entry;
    for (std::size_t entry = first; entry < first + action.parts; ++entry) {
      Stamp& stamp = stamps_[entry];
      stamp.start_ns = clock_->At(MarkOf(first, Moment::kStart));
      stamp.end_ns = clock_->At(MarkOf(first, Moment::kEnd));
      stamp.sent_ns = action.parts == 1 ? clock_->At(MarkOf(entry, Moment::kSent)) : 0;
    }
  }
}

bool Executor::RunActions(std::size_t begin, std::size_t end, std::int64_t round) {
  const Transport& transport = binding_.transport;
  for (std::size_t i = begin; i < end; ++i) {
    const BoundAction& action = actions_[i];
    if (transport.aborted()) return false;
    std::array<Message, 2> inputs;
    if (!Enter(action, round, inputs)) return false;
    const std::size_t next = action.entry + action.parts;
    progress_.store(Progress(round, next - 1, true), std::memory_order_relaxed);
    if (action.parts == 1) {
      RunOne(action.entry, std::move(inputs[0]), round);
    } else {
      RunPair(&parts_[action.entry], inputs, stamps_ + action.entry);
      PENSTOCK_CHECK(outlets_[1].sent(), "the stage sent nothing");
    }
    PENSTOCK_CHECK(outlets_[0].sent(), "the stage sent nothing");
    progress_.store(Progress(round, next, false), std::memory_order_relaxed);
  }
  return true;
}

std::string Executor::CurrentAction() const {
  const std::size_t index = IndexOf(progress());
  return index < program_.size() ? TextOf(program_[index]) : std::string();
}

std::string Executor::TextOf(const ProgramEntry& entry) const {
  if (entry.position < 0) return ToText(entry.part);
  const Lane& lane = binding_.schedule.lanes[rank_];
  return ToText(lane[entry.position]);
}

std::string Executor::Doing() const {
  const std::uint64_t now = progress();
  const std::size_t index = IndexOf(now);
  int exchanged = exchange_ ? exchange_->waits_for() : -1;
  if (vocabulary_ && exchanged < 0) exchanged = vocabulary_->waits_for();
  if (index >= program_.size()) {
    return exchanged < 0
               ? "is between two steps"
               : fmt::format("waits after its step for the {}", messages_.Describe(exchanged));
  }
  const std::string action = TextOf(program_[index]);
  if ((now & 1) != 0) return fmt::format("runs {}", action);
  if (stage_waits_.load(std::memory_order_relaxed)) {
    return fmt::format("waits at {} for transfers of its own stage", action);
  }
  const int slot = exchanged < 0 ? messages_.InSlot(program_[index].part) : exchanged;
  if (slot < 0) return fmt::format("is about to run {}", action);
  return fmt::format("waits at {} for the {}", action, messages_.Describe(slot));
}

}  // namespace penstock
