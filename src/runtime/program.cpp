#include "runtime/program.h"

#include "schedule/text.h"

namespace penstock {
namespace {

bool HasStepCell(const Schedule& schedule) {
  for (const Lane& lane : schedule.lanes) {
    for (const Action& action : lane) {
      if (action.first.op == Op::kStep) return true;
    }
  }
  return false;
}

Status CheckSchedule(const Schedule& schedule, int rank) {
  if (rank < 0 || rank >= schedule.ranks() ||
      static_cast<int>(schedule.lanes.size()) != schedule.ranks()) {
    return InvalidArgument("rank {}: the schedule has {} ranks and {} lanes", rank,
                           schedule.ranks(), schedule.lanes.size());
  }
  return {};
}

Status CheckPart(const Schedule& schedule, int rank, const ProgramEntry& entry) {
  const Part& part = entry.part;
  if (part.stage >= schedule.stages() || schedule.placement.rank_of(part.stage) != rank) {
    return InvalidArgument("rank {}, action {} ({}): stage {} is not on this rank", rank,
                           entry.position, ToText(part), part.stage);
  }
  if (HasMicrobatch(part.op) && (part.microbatch < 0 || part.microbatch >= schedule.rows())) {
    return InvalidArgument("rank {}, action {} ({}): microbatches are 0 to {}", rank,
                           entry.position, ToText(part), schedule.rows() - 1);
  }
  return {};
}

}  // namespace

Result<Program> MakeProgram(const Schedule& schedule, int rank) {
  PENSTOCK_TRY_STATUS(CheckSchedule(schedule, rank));
  const Lane& lane = schedule.lanes[static_cast<std::size_t>(rank)];
  Program program;
  program.reserve(lane.size() + schedule.placement.stages_of(rank).size());
  for (std::size_t i = 0; i < lane.size(); ++i) {
    if (IsCommunication(lane[i].first.op)) continue;
    const int position = static_cast<int>(i);
    program.push_back({lane[i].first, position});
    if (lane[i].is_pair()) program.push_back({lane[i].second, position, /*ends_pair=*/true});
  }
  for (const ProgramEntry& entry : program) {
    PENSTOCK_TRY_STATUS(CheckPart(schedule, rank, entry));
  }
  if (!HasStepCell(schedule)) {
    for (const int stage : schedule.placement.stages_of(rank)) {
      program.push_back({MakeAction(Op::kStep, stage).first, -1});
    }
  }
  return program;
}

MessageMap::MessageMap(const Schedule& schedule)
    : schedule_(&schedule), stages_(schedule.stages()), rows_(schedule.rows()) {}

int MessageMap::Receiver(const Value& value) const {
  return value.kind == ValueKind::kActivation ? schedule_->placement.next(value.stage)
                                              : schedule_->placement.previous(value.stage);
}

int MessageMap::Slot(const Value& value) const {
  if (Receiver(value) < 0) return -1;
  const int kind = value.kind == ValueKind::kActivation ? 0 : 1;
  return (kind * stages_ + value.stage) * rows_ + value.microbatch;
}

int MessageMap::InSlot(const Part& part) const {
  int slot = -1;
  ForEachDependency(ChainShape::Of(*schedule_), part, [&](const Value& value) {
    if (value.stage != part.stage) slot = Slot(value);
  });
  return slot;
}

int MessageMap::OutSlot(const Part& part) const {
  if (part.op != Op::kForward && !MakesInputGradient(part.op)) return -1;
  return Slot({MadeBy(part.op), part.stage, part.microbatch});
}

Value MessageMap::ValueOf(int slot) const {
  const int row = slot % rows_;
  const int edge = slot / rows_;
  return {edge < stages_ ? ValueKind::kActivation : ValueKind::kGradient, edge % stages_, row};
}

int MessageMap::from_rank(int slot) const {
  return schedule_->placement.rank_of(ValueOf(slot).stage);
}

int MessageMap::to_rank(int slot) const {
  const int stage = Receiver(ValueOf(slot));
  return stage < 0 ? -1 : schedule_->placement.rank_of(stage);
}

}  // namespace penstock
