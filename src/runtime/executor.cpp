#include "runtime/executor.h"

#include <chrono>
#include <utility>

#include "schedule/text.h"

namespace penstock {
namespace {

std::int64_t Now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

std::uint64_t Executor::Progress(std::int64_t round, std::size_t index, bool computing) {
  return (static_cast<std::uint64_t>(round) << kIndexBits) | (index << 1) | (computing ? 1U : 0U);
}

std::size_t Executor::IndexOf(std::uint64_t progress) {
  return (progress & ((std::uint64_t{1} << kIndexBits) - 1)) >> 1;
}

void Executor::SlotOutlet::Send(Message message) {
  if (slot_ < 0) {
    // The end of a chain may hand out its gradient all the same: nobody wants it.
    PENSTOCK_CHECK(!expected_, "an action sent two messages");
    return;
  }
  transport_.Send(std::exchange(slot_, -1), round_, std::move(message));
}

Executor::Executor(const Binding& binding, Program program)
    : binding_(binding),
      program_(std::move(program)),
      messages_(*binding.schedule),
      outlet_(*binding.transport) {}

Executor::Call Executor::CallOf(Op op) {
  switch (op) {
    case Op::kForward:
      return [](Stage& stage, int row, Message input, Outlet& output) {
        stage.Forward(row, std::move(input), output);
      };
    case Op::kBackward:
      return [](Stage& stage, int row, Message input, Outlet& output) {
        stage.Backward(row, std::move(input), output);
      };
    case Op::kBackwardInput:
      return [](Stage& stage, int row, Message input, Outlet& output) {
        stage.BackwardInput(row, std::move(input), output);
      };
    case Op::kBackwardWeight:
      return [](Stage& stage, int row, Message, Outlet&) { stage.BackwardWeight(row); };
    default:
      return [](Stage& stage, int, Message, Outlet&) { stage.Step(); };
  }
}

Result<std::unique_ptr<Executor>> Executor::Bind(const Binding& binding) {
  const Schedule& schedule = *binding.schedule;
  PENSTOCK_TRY(Program program, MakeProgram(schedule, binding.rank));
  std::unique_ptr<Executor> executor(new Executor(binding, std::move(program)));
  for (const int stage : schedule.placement.stages_of(binding.rank)) {
    const auto index = static_cast<std::size_t>(stage);
    if (index >= binding.stages.size() || binding.stages[index] == nullptr) {
      return InvalidArgument("rank {}: stage {} is missing", binding.rank, stage);
    }
    executor->stages_.push_back(binding.stages[index]);
  }
  executor->actions_.reserve(executor->program_.size());
  for (const auto& [part, position] : executor->program_) {
    executor->actions_.push_back({CallOf(part.op), binding.stages[part.stage], part.microbatch,
                                  executor->messages_.InSlot(part),
                                  executor->messages_.OutSlot(part)});
  }
  return executor;
}

bool Executor::RunStep(std::int64_t round, std::int64_t step) {
  Transport& transport = *binding_.transport;
  progress_.store(Progress(round, 0, false), std::memory_order_relaxed);
  for (Stage* stage : stages_) stage->BeginStep(step);
  Stamp* stamps = binding_.trace->Begin(binding_.rank, round);
  for (std::size_t i = 0; i < actions_.size(); ++i) {
    const BoundAction& action = actions_[i];
    if (transport.aborted()) return false;
    Message input;
    if (action.in_slot >= 0 && !transport.Receive(action.in_slot, round, input)) return false;
    progress_.store(Progress(round, i, true), std::memory_order_relaxed);
    outlet_.Open(action.out_slot, round);
    stamps[i].start_ns = Now();
    action.call(*action.stage, action.row, std::move(input), outlet_);
    stamps[i].end_ns = Now();
    stamps[i].activation_bytes = action.stage->ActivationBytes();
    PENSTOCK_CHECK(outlet_.sent(), "the stage sent nothing");
    progress_.store(Progress(round, i + 1, false), std::memory_order_relaxed);
  }
  binding_.trace->End(binding_.rank, round);
  return true;
}

std::string Executor::CurrentAction() const {
  const std::size_t index = IndexOf(progress());
  return index < program_.size() ? ToText(program_[index].part) : std::string();
}

std::string Executor::Doing() const {
  const std::uint64_t now = progress();
  const std::size_t index = IndexOf(now);
  if (index >= program_.size()) return "is between two steps";
  const Part& part = program_[index].part;
  if ((now & 1) != 0) return fmt::format("runs {}", ToText(part));
  const int slot = messages_.InSlot(part);
  if (slot < 0) return fmt::format("is about to run {}", ToText(part));
  const Value value = messages_.ValueOf(slot);
  return fmt::format("waits at {} for the {} of stage {}, microbatch {}, from rank {}",
                     ToText(part),
                     value.kind == ValueKind::kActivation ? "activation" : "input gradient",
                     value.stage, value.microbatch, messages_.from_rank(slot));
}

}  // namespace penstock
