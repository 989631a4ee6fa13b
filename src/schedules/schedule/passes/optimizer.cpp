// Adds the optimizer's STEP of every stage, one for each update.
//
//   before                   1F0 3F0 ... 3W7 1I7 1W7
//   with post-validation     1F0 3F0 ... 3W7 3STEP 1I7 1W7 1STEP
//   without                  1F0 3F0 ... 3W7 1I7 1W7 1STEP 3STEP
//
// Gradient clipping and the check for non-finite values need the gradients of every stage. Without
// post-validation every STEP waits for all of them (as the simulator does with steps_wait_for_all),
// so a rank's STEPs follow the last gradient of all its stages. With post-validation a stage steps
// at once and the check follows (Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024, section
// 4), so its STEP follows its own last W or B and REDUCE_GRAD. Replicas sum their gradients before
// any of them steps, and so do stages that share a parameter; they are handled as without
// post-validation, so that none waits in the middle of a lane. In both cases the STEP also follows
// the adjacent actions that do not occupy the rank, so that it delays no message.
#include <limits>

#include "base/index.h"
#include "schedule/passes/lanes.h"
#include "schedule/passes/pass_table.h"
#include "schedule/validate/validate.h"

namespace penstock {
namespace {

class LaneStepper {
 public:
  LaneStepper(const Schedule& schedule, int rank, bool at_once)
      : lane_(schedule.lanes[rank]),
        at_once_(at_once),
        due_(schedule.stages()),
        reduces_(schedule.stages()) {
    for (const int stage : schedule.placement.stages_of(rank)) {
      if (HasGradients(schedule.backward_of(stage))) stages_.push_back(stage);
    }
    for (const Action& action : lane_) {
      if (action.first.op == Op::kReduceGrad) reduces_[action.first.stage] = true;
    }
  }

  Lane Run(GradientCounter& gradients) {
    out_.reserve(lane_.size() + stages_.size());
    for (const Action& action : lane_) {
      if (OccupiesRank(action.first.op)) EmitDue();
      out_.push_back(action);
      ForEachPart(action, [&](const Part& part) {
        const int complete = gradients.Note(part);
        if (complete > 0 && !reduces_[part.stage]) AddDue(part.stage, complete);
      });
      if (action.first.op == Op::kReduceGrad) AddDue(action.first.stage, 1);
    }
    EmitDue();
    return std::move(out_);
  }

 private:
  void AddDue(int stage, int updates) {
    due_[stage] += updates;
    any_due_ = true;
  }

  void EmitDue() {
    if (!any_due_) return;
    any_due_ = false;
    int common = std::numeric_limits<int>::max();
    for (const int stage : stages_) common = std::min(common, due_[stage]);
    for (const int stage : stages_) {
      const int count = at_once_ ? due_[stage] : common;
      due_[stage] -= count;
      out_.insert(out_.end(), Index(count), MakeAction(Op::kStep, stage));
    }
  }

  const Lane& lane_;
  std::vector<int> stages_;  // that step
  const bool at_once_;
  bool any_due_ = false;
  std::vector<int> due_;       // by stage: updates with complete gradients that lack their STEP
  std::vector<bool> reduces_;  // by stage: whether gradients are complete only once reduced
  Lane out_;
};

}  // namespace

Result<Schedule> AddOptimizer(const Schedule& schedule, const OptimizerOptions& options) {
  if (HasOps(schedule, OpBit(Op::kStep))) return schedule;
  GradientCounter gradients(schedule);
  const bool at_once =
      options.post_validation && schedule.placement.replicas() == 1 && schedule.shared.empty();
  std::vector<Lane> lanes;
  for (int rank = 0; rank < schedule.ranks(); ++rank) {
    lanes.push_back(LaneStepper(schedule, rank, at_once).Run(gradients));
  }
  Schedule result = WithLanes(schedule, std::move(lanes));
  const std::vector<Fault> faults = Validate(result, {.max_faults = 1});
  if (faults.empty()) return result;
  return InvalidArgument("the schedule has no place for a STEP: {}", Line(faults.front()));
}

SchedulePass OptimizerPass() {
  return {
      "optimizer", "[post-validation]",
      "STEP of each stage once all gradients of its rank are complete, or with post-validation "
      "once its own are",
      [](const Schedule& schedule, PassArguments arguments,
         const PassContext&) -> Result<Schedule> {
        const OptimizerOptions options{.post_validation = arguments.TakeWord("post-validation")};
        PENSTOCK_TRY_STATUS(arguments.Done());
        return AddOptimizer(schedule, options);
      }};
}

}  // namespace penstock
