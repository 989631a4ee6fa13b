// Splits every B into I and W, so that input gradients are sent early and weight gradients can
// wait.
//
//   before    0F0 0F1 0B0 0SEND_B0 0B1 0REDUCE_GRAD
//   after     0F0 0F1 0I0 0SEND_B0 0W0 0I1 0W1 0REDUCE_GRAD
//   delay 1   0F0 0F1 0I0 0SEND_B0 0I1 0W0 0W1 0REDUCE_GRAD
//
// W needs only its I, so it may run any time after it, but before what reads or frees what W needs:
// RESHARD and REDUCE_GRAD of its stage, and any STEP. In a pair, I replaces B. With a delay of r on
// rank r, 1F1B becomes ZB-H1.
#include <deque>

#include "schedule/passes/lanes.h"
#include "schedule/passes/pass_table.h"

namespace penstock {
namespace {

class LaneSplitter {
 public:
  LaneSplitter(int delay, std::size_t reserve) : delay_(delay) { lane_.reserve(reserve); }

  void Add(Action action) {
    if (!IsCommunication(action.first.op)) Emit(delay_);
    const Op op = action.first.op;
    if (op == Op::kReshard || op == Op::kReduceGrad) EmitStage(action.first.stage);
    // A STEP may wait for stages of other ranks, which in turn may wait for any stage of this rank.
    if (op == Op::kStep) Emit(0);
    for (Part* part : {&action.first, &action.second}) {
      if (part->op != Op::kBackward) continue;
      part->op = Op::kBackwardInput;
      pending_.push_back(BackwardWeight(part->stage, part->microbatch));
    }
    lane_.push_back(action);
  }

  Lane Take() {
    Emit(0);
    return std::move(lane_);
  }

 private:
  // Emits the oldest until `kept` are left.
  void Emit(std::size_t kept) {
    for (; pending_.size() > kept; pending_.pop_front()) lane_.push_back(pending_.front());
  }

  void EmitStage(int stage) {
    std::deque<Action> others;
    for (const Action& action : pending_) {
      if (action.first.stage == stage) {
        lane_.push_back(action);
      } else {
        others.push_back(action);
      }
    }
    pending_.swap(others);
  }

  const std::size_t delay_;
  std::deque<Action> pending_;  // W that are not emitted yet, oldest first
  Lane lane_;
};

}  // namespace

Schedule SplitBackward(const Schedule& schedule, const SplitOptions& options) {
  std::vector<Lane> lanes;
  for (const Lane& lane : schedule.lanes) {
    const int rank = static_cast<int>(lanes.size());
    const int delay = options.delay_by_rank ? rank : std::max(options.delay, 0);
    LaneSplitter splitter(delay, lane.size() + lane.size() / 2);
    for (const Action& action : lane) splitter.Add(action);
    lanes.push_back(splitter.Take());
  }
  return WithLanes(schedule, std::move(lanes));
}

SchedulePass SplitBackwardPass() {
  return {"split-backward", "[DELAY|rank]",
          "split B into I and W; W follows DELAY (0) backwards later, or r later on rank r",
          [](const Schedule& schedule, PassArguments arguments,
             const PassContext&) -> Result<Schedule> {
            SplitOptions options;
            options.delay_by_rank = arguments.TakeWord("rank");
            if (!options.delay_by_rank) options.delay = arguments.TakeCount().value_or(0);
            PENSTOCK_TRY_STATUS(arguments.Done());
            return SplitBackward(schedule, options);
          }};
}

}  // namespace penstock
