// Trades time for memory: F keeps only its input, and RECOMPUTE runs it again before I or B.
//
//   before   0F0 0F1 0F2 0B0 ...
//   after    0F0 0F1 0F2 0RECOMPUTE0 0B0 ...
//
// RECOMPUTE directly precedes its I or B and needs nothing from other ranks, so it runs while the
// gradient is in flight. Without a memory limit every microbatch is recomputed, also one whose I or
// B directly follows its F: so do frameworks that checkpoint whole layers (Megatron-LM's full
// recomputation). With a limit, a microbatch is recomputed only if something else runs with its F
// or between that and its I or B, and the rank's memory would exceed a level, the highest one that
// keeps its peak at the limit. (Chen et al., Training Deep Nets with Sublinear Memory Cost, 2016.)
#include "base/index.h"
#include "schedule/passes/lanes.h"
#include "schedule/passes/level_search.h"
#include "schedule/passes/pass_table.h"

namespace penstock {
namespace {

class LaneRecomputer {
 public:
  // Without `limited`, microbatches are recomputed also where that saves no memory.
  LaneRecomputer(const Schedule& schedule, const Costs& costs, int rank, bool limited)
      : lane_(schedule.lanes[rank]),
        costs_(costs),
        limited_(limited),
        indices_(schedule.indices()),
        local_of_(schedule.stages()) {
    const std::vector<int>& stages = schedule.placement.stages_of(rank);
    for (std::size_t i = 0; i < stages.size(); ++i) {
      local_of_[stages[i]] = i;
    }
    recomputed_.resize(stages.size() * indices_);
  }

  Lane Run(double level) {
    Lane out;
    out.reserve(lane_.size() + lane_.size() / 2);
    for (std::size_t i = 0; i < lane_.size(); ++i) {
      ForEachPart(lane_[i], [&](const Part& part) {
        if (MakesInputGradient(part.op) && recomputed_[Key(part)]) {
          out.push_back(MakeAction(Op::kRecompute, part.stage, part.microbatch));
          held_ += Saved(part);
        }
      });
      ForEachPart(lane_[i], [&](const Part& part) {
        if (part.op == Op::kForward) Keep(part, i, level);
      });
      ForEachPart(lane_[i], [&](const Part& part) { Free(part); });
      out.push_back(lane_[i]);
    }
    return out;
  }

 private:
  std::size_t Key(const Part& part) const {
    return local_of_[part.stage] * indices_ + Index(part.microbatch);
  }
  double Saved(const Part& part) const {
    const StageCosts& stage = costs_.Of(part);
    return stage.activation - stage.input_activation;
  }

  // Whether the rank runs something else between the F at `position` and its I or B.
  bool Waits(const Part& forward, std::size_t position) const {
    for (std::size_t i = position + 1; i < lane_.size(); ++i) {
      if (!OccupiesRank(lane_[i].first.op)) continue;
      bool follows = false;
      ForEachPart(lane_[i], [&](const Part& part) {
        follows = follows || (MakesInputGradient(part.op) && part.stage == forward.stage &&
                              part.microbatch == forward.microbatch);
      });
      return !follows;
    }
    return false;
  }

  // Whether recomputing lowers some peak: while the rank runs something else before the I or B, or
  // together with the F.
  bool Saves(const Part& forward, std::size_t position) const {
    return lane_[position].is_pair() || Waits(forward, position);
  }

  void Keep(const Part& forward, std::size_t position, double level) {
    held_ += costs_.Of(forward).activation;
    if (held_ <= level || (limited_ && !Saves(forward, position))) return;
    recomputed_[Key(forward)] = true;
    held_ -= Saved(forward);
  }

  void Free(const Part& part) {
    const StageCosts& stage = costs_.Of(part);
    if (part.op == Op::kBackward) held_ -= stage.activation;
    if (part.op == Op::kBackwardInput) held_ -= stage.activation - stage.activation_after_i;
    if (part.op == Op::kBackwardWeight) held_ -= stage.activation_after_i;
  }

  const Lane& lane_;
  const Costs& costs_;
  const bool limited_;
  const std::size_t indices_;
  std::vector<std::size_t> local_of_;  // by stage
  std::vector<bool> recomputed_;       // by (local stage, microbatch)
  double held_ = 0;
};

Schedule Build(const Schedule& schedule, const Costs& costs, const Levels& levels, bool limited) {
  std::vector<Lane> lanes;
  for (int rank = 0; rank < schedule.ranks(); ++rank) {
    LaneRecomputer recomputer(schedule, costs, rank, limited);
    lanes.push_back(recomputer.Run(levels[rank]));
  }
  return WithLanes(schedule, std::move(lanes));
}

}  // namespace

Result<Schedule> AddRecompute(const Schedule& schedule, const Costs& costs, const Pricer& price,
                              const RecomputeOptions& options) {
  if (HasOps(schedule, OpBit(Op::kRecompute))) return schedule;
  const std::size_t ranks = schedule.lanes.size();
  if (!options.memory_limit) return Build(schedule, costs, Levels(ranks, kEveryMicrobatch), false);
  if (!price) return InvalidArgument("a memory limit needs a simulator");
  PENSTOCK_TRY(const Priced before, price(schedule));
  return SearchLevels(
      [&](const Levels& levels) -> Result<Schedule> {
        return Build(schedule, costs, levels, true);
      },
      price, before.peak_memory, std::vector<double>(ranks, *options.memory_limit));
}

SchedulePass RecomputePass() {
  return {"recompute", kLimitArgument,
          "RECOMPUTE before I or B: every microbatch, or as few as keep each rank within LIMIT",
          [](const Schedule& schedule, PassArguments arguments,
             const PassContext& context) -> Result<Schedule> {
            const RecomputeOptions options{.memory_limit = arguments.TakeNumber()};
            PENSTOCK_TRY_STATUS(arguments.Done());
            return AddRecompute(schedule, context.costs, context.price, options);
          }};
}

}  // namespace penstock
