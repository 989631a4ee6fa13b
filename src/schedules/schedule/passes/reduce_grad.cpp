// Adds REDUCE_GRAD to every stage once its gradients of an update are complete: data parallelism
// without sharding.
//
//   before   1F0 3F0 ... 3W7 3SEND_B7 1I7 1W7
//   after    1F0 3F0 ... 3W7 3SEND_B7 3REDUCE_GRAD 1I7 1W7 1REDUCE_GRAD
//   wait     1F0 3F0 ... 3W7 3SEND_B7 3REDUCE_GRAD 3WAIT_REDUCE_GRAD 1I7 ...
//   defer    1F0 3F0 ... 3SEND_B7 3REDUCE_GRAD 1I7 1W7 3WAIT_REDUCE_GRAD 1REDUCE_GRAD ...
//
// torch.distributed.pipelining divides the accumulated gradients by the number of microbatches only
// in this action, so a schedule lowered for torch needs it even without data parallelism. It
// follows the SENDs of the last backward, which other ranks wait for.
#include "schedule/deps.h"
#include "schedule/passes/lanes.h"
#include "schedule/passes/pass_table.h"

namespace penstock {
namespace {

Lane AddToLane(const Lane& lane, GradientCounter& gradients) {
  Lane out;
  out.reserve(lane.size() + 4);
  Lane due;
  const auto emit_due = [&] {
    out.insert(out.end(), due.begin(), due.end());
    due.clear();
  };
  for (const Action& action : lane) {
    if (OccupiesRank(action.first.op)) emit_due();
    out.push_back(action);
    ForEachPart(action, [&](const Part& part) {
      for (int left = gradients.Note(part); left > 0; --left) {
        due.push_back(MakeAction(Op::kReduceGrad, part.stage));
      }
    });
  }
  auto end = out.end();  // the waits at the end of a lane may take time
  while (end != out.begin() && IsWaitSend(std::prev(end)->first.op)) --end;
  out.insert(end, due.begin(), due.end());
  return out;
}

}  // namespace

Schedule AddReduceGrad(const Schedule& schedule) {
  if (HasOps(schedule, OpBit(Op::kReduceGrad))) return schedule;
  GradientCounter gradients(schedule);
  std::vector<Lane> lanes;
  for (const Lane& lane : schedule.lanes) lanes.push_back(AddToLane(lane, gradients));
  return WithLanes(schedule, std::move(lanes));
}

Schedule AddReductionWaits(const Schedule& schedule, bool deferred) {
  if (HasOps(schedule, OpBit(Op::kWaitReduceGrad))) return schedule;
  std::vector<Lane> lanes;
  for (const Lane& lane : schedule.lanes) {
    Lane& out = lanes.emplace_back();
    Lane pending;  // the WAIT_REDUCE_GRAD of the last REDUCE_GRAD
    const auto wait = [&] {
      out.insert(out.end(), pending.begin(), pending.end());
      pending.clear();
    };
    for (const Action& action : lane) {
      if (action.first.op == Op::kReduceGrad) wait();
      out.push_back(action);
      if (action.first.op == Op::kReduceGrad) {
        pending.push_back(MakeAction(Op::kWaitReduceGrad, action.first.stage));
      }
      if (!deferred) wait();
    }
    wait();
  }
  return WithLanes(schedule, std::move(lanes));
}

Schedule LowerForTorch(const Schedule& schedule) {
  const Schedule lowered = AddReduceGrad(AddCommunication(schedule));
  return HasWaitSend(lowered) ? AddReductionWaits(lowered) : lowered;
}

SchedulePass ReduceGradPass() {
  return {"reduce-grad", "[wait|defer]",
          "REDUCE_GRAD of each stage when its gradients are complete; WAIT_REDUCE_GRAD at once or "
          "before the next",
          [](const Schedule& schedule, PassArguments arguments,
             const PassContext&) -> Result<Schedule> {
            const bool waits = arguments.TakeWord("wait"), defers = arguments.TakeWord("defer");
            PENSTOCK_TRY_STATUS(arguments.Done());
            const Schedule reduced = AddReduceGrad(schedule);
            return waits || defers ? AddReductionWaits(reduced, defers) : reduced;
          }};
}

}  // namespace penstock
