// The executor's part in updates that involve several stages: exchanges between its actions, and
// early steps that the next round commits or rolls back.
#include <algorithm>

#include "base/index.h"
#include "runtime/executor/executor.h"

namespace penstock {

std::size_t Executor::ActionAt(std::size_t entry) const {
  const auto found =
      std::lower_bound(actions_.begin(), actions_.end(), entry,
                       [](const BoundAction& action, std::size_t at) { return action.entry < at; });
  return Index(found - actions_.begin());
}

Status Executor::BindUpdates() {
  PENSTOCK_TRY(const std::vector<UpdatePoint> points,
               FindUpdatePoints(binding_.schedule, rank_, program_, rule()));
  for (const UpdatePoint& point : points) points_.push_back({ActionAt(point.before), point});
  if (points.empty()) return {};
  exchange_ = std::make_unique<UpdateExchange>(
      UpdateExchange::RankContext{&binding_.schedule, rank_, binding_.stages, &binding_.transport},
      rule());
  return rule().steps_early() ? BindCheckPoint() : Status();
}

// A schedule of several steps exchanges nothing, so points_ is empty.
void Executor::BindSteps() {
  const Schedule& schedule = binding_.schedule;
  if (schedule.steps == 1) return;
  const int updates_per_step = schedule.weights == WeightPolicy::kStashed
                                   ? schedule.indices() / schedule.steps / schedule.slices
                                   : 1;
  // Stages that never step do not keep the rank's steps waiting.
  std::vector<int> updates(schedule.stages());
  for (const int stage : schedule.placement.stages_of(rank_)) {
    if (!HasGradients(schedule.backward_of(stage)))
      updates[stage] = schedule.steps * updates_per_step;
  }
  for (std::size_t i = 0; i < program_.size(); ++i) {
    if (program_[i].part.op != Op::kStep) continue;
    ++updates[program_[i].part.stage];
    int least = schedule.steps * updates_per_step;
    for (const int stage : schedule.placement.stages_of(rank_)) {
      least = std::min(least, updates[stage]);
    }
    while (least / updates_per_step > std::ssize(steps_)) {
      steps_.push_back({ActionAt(i + 1), static_cast<int>(steps_.size())});
    }
  }
}

// Marks the messages of early forwards, which are sent again if these run again.
Status Executor::BindCheckPoint() {
  const Schedule& schedule = binding_.schedule;
  PENSTOCK_TRY(const std::vector<std::size_t> ends, FindCheckPoints(schedule));
  std::vector<bool> again(messages_.slots());
  for (int rank = 0; rank < schedule.ranks(); ++rank) {
    PENSTOCK_TRY(const Program program, MakeProgram(schedule, rank));
    for (std::size_t i = 0; i < ends[rank]; ++i) {
      const int slot = messages_.OutSlot(program[i].part);
      if (slot >= 0) again[slot] = true;
    }
  }
  early_actions_ = ActionAt(ends[rank_]);
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    BoundPart& part = parts_[i];
    const auto is_again = [&](int slot) { return slot >= 0 && again[slot]; };
    part.in_again = is_again(part.in_slot);
    part.out_again = is_again(part.out_slot);
    if (part.in_again && i >= ends[rank_]) {
      early_unread_.push_back(part.in_slot);
    }
  }
  return {};
}

bool Executor::AtPoint(const UpdatePoint& point, std::int64_t round, std::int64_t step) {
  switch (point.kind) {
    case UpdatePoint::Kind::kShare:
      exchange_->ShareGradients(point.stage, round);
      return true;
    case UpdatePoint::Kind::kAdd:
      return exchange_->AddGradients(point.stage, round);
    case UpdatePoint::Kind::kShareParameters:
      exchange_->ShareParameters(point.stage, round);
      return true;
    case UpdatePoint::Kind::kAddParameters:
      return exchange_->AddParameters(point.stage, round);
    case UpdatePoint::Kind::kMeasure:
      exchange_->Measure(point.stage);
      return true;
    case UpdatePoint::Kind::kSend:
      exchange_->SendNorms(round);
      return true;
    case UpdatePoint::Kind::kShareShard:
      exchange_->ShareShard(point.stage, round + times_again_);
      return true;
    case UpdatePoint::Kind::kAgree:
      break;
  }
  Verdict verdict;
  if (!Agree(round, step, verdict)) return false;
  for (Stage* stage : stages_) {
    if (!verdict.apply) stage->update().DropGradients();
    if (verdict.apply && verdict.scale != 1) stage->update().ScaleGradients(verdict.scale);
  }
  return true;
}

bool Executor::Agree(std::int64_t round, std::int64_t step, Verdict& verdict) {
  if (!exchange_->Agree(round, verdict)) return false;
  if (binding_.options.on_verdict && rank_ == messages_.root())
    binding_.options.on_verdict(step, verdict);
  return true;
}

bool Executor::TakeShards(std::int64_t round) {
  if (!rule().sends_shards() || exchange_ == nullptr) return true;
  for (const int stage : binding_.schedule.placement.stages_of(rank_)) {
    if (!HasGradients(binding_.schedule.backward_of(stage))) continue;
    if (!exchange_->TakeShards(stage, round + times_again_)) return false;
  }
  return true;
}

bool Executor::SettleLastStep(std::int64_t round, std::int64_t step, bool& amended) {
  Verdict verdict;
  if (!Agree(round, step, verdict)) return false;
  amended = !verdict.unchanged();
  for (Stage* stage : stages_) {
    StageUpdate& update = stage->update();
    if (!amended) {
      update.CommitStep();
      continue;
    }
    update.RollBackStep();
    if (verdict.apply) {
      update.ScaleGradients(verdict.scale);
    } else {
      update.DropGradients();
    }
    stage->Step();
  }
  return true;
}

bool Executor::RunEarlyForwards(std::int64_t round, std::int64_t step) {
  if (!RunActions(0, early_actions_, round)) return false;
  bool amended = false;
  if (!SettleLastStep(round - 1, step - 1, amended)) return false;
  if (!amended) return true;
  // The early forwards read weights that have been rolled back.
  for (const int slot : early_unread_) {
    Message message;
    if (!binding_.transport.Receive(slot, round + times_again_, message)) return false;
  }
  for (Stage* stage : stages_) stage->DropForwards();
  ++times_again_;
  if (!ShareShardsAgain(round - 1)) return false;
  return RunActions(0, early_actions_, round);
}

bool Executor::ShareShardsAgain(std::int64_t round) {
  if (!rule().sends_shards() || exchange_ == nullptr) return true;
  for (const int stage : binding_.schedule.placement.stages_of(rank_)) {
    if (!HasGradients(binding_.schedule.backward_of(stage))) continue;
    exchange_->ShareShard(stage, round + times_again_);
  }
  return TakeShards(round);
}

bool Executor::Finish(std::int64_t rounds, std::int64_t step) {
  if (rounds == 0 || !rule().steps_early()) return true;
  if (!TakeShards(rounds - 1)) return false;
  bool amended = false;
  if (!SettleLastStep(rounds - 1, step, amended)) return false;
  if (amended) {
    ++times_again_;
    if (!ShareShardsAgain(rounds - 1)) return false;
  }
  EndStep();
  return true;
}

}  // namespace penstock
