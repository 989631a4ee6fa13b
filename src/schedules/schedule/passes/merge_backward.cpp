// Merges I and W into B, for models where two kernels cost more than they gain.
//
//   before      0F0 0I0 0SEND_B0 0W0 0I1 0F2 0W1
//   adjacent    0F0 0B0 0SEND_B0 0I1 0F2 0W1
//   all         0F0 0B0 0SEND_B0 0B1 0F2
//
// B replaces I: everything that W needs is available there, since I computes or reads it. The input
// gradient is then sent later by the time of W. A pair of F and W whose I is elsewhere becomes F.
#include "schedule/passes/lanes.h"
#include "schedule/passes/pass_table.h"

namespace penstock {
namespace {

// Returns the part of `action` that is W's I, or null.
Part* FindInputHalf(Action& action, const Part& weight) {
  for (Part* part : {&action.first, &action.second}) {
    if (part->op == Op::kBackwardInput && part->stage == weight.stage &&
        part->microbatch == weight.microbatch) {
      return part;
    }
  }
  return nullptr;
}

Lane MergeAdjacent(const Lane& lane) {
  Lane merged;
  merged.reserve(lane.size());
  std::size_t last = 0;  // index in `merged` of the last action that is no message
  for (const Action& action : lane) {
    if (action.first.op == Op::kBackwardWeight && !action.is_pair() && last < merged.size()) {
      if (Part* half = FindInputHalf(merged[last], action.first)) {
        half->op = Op::kBackward;
        continue;
      }
    }
    if (!IsCommunication(action.first.op)) last = merged.size();
    merged.push_back(action);
  }
  return merged;
}

Lane MergeAll(const Schedule& schedule, const Lane& lane) {
  Lane merged;
  merged.reserve(lane.size());
  for (Action action : lane) {
    if (action.second.op == Op::kBackwardWeight) action.second = {};
    if (action.first.op == Op::kBackwardWeight) {
      if (!action.is_pair()) continue;
      action = {action.second, {}};
    }
    for (Part* part : {&action.first, &action.second}) {
      const bool has_weight = schedule.backward_of(part->stage) == StageBackward::kWhole;
      if (part->op == Op::kBackwardInput && has_weight) part->op = Op::kBackward;
    }
    merged.push_back(action);
  }
  return merged;
}

}  // namespace

Schedule MergeBackward(const Schedule& schedule, const MergeOptions& options) {
  std::vector<Lane> lanes;
  for (const Lane& lane : schedule.lanes) {
    lanes.push_back(options.all ? MergeAll(schedule, lane) : MergeAdjacent(lane));
  }
  return WithLanes(schedule, std::move(lanes));
}

SchedulePass MergeBackwardPass() {
  return {"merge-backward", "[adjacent]",
          "merge I and W into B in place of I: all, or only adjacent ones",
          [](const Schedule& schedule, PassArguments arguments,
             const PassContext&) -> Result<Schedule> {
            const MergeOptions options{.all = !arguments.TakeWord("adjacent")};
            PENSTOCK_TRY_STATUS(arguments.Done());
            return MergeBackward(schedule, options);
          }};
}

}  // namespace penstock
