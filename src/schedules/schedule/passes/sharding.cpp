// All-gathers each stage's sharded weights before use, frees them after, and reduces its gradients
// once they are complete (FSDP; Zhao et al., PyTorch FSDP, VLDB 2023, section 3).
//
//   before                    0F0 0F1 2F0 2F1 ...
//   lookahead 0               0UNSHARD 0F0 0F1 0RESHARD 2UNSHARD 2F0 2F1 ...
//   lookahead 1 (v = 3)       0UNSHARD 2UNSHARD 0F0 0F1 0RESHARD 4UNSHARD 2F0 2F1 ...
//   resident to the end       0UNSHARD 2UNSHARD 0F0 0F1 4UNSHARD 2F0 2F1 ...
//
// A rank's window of n is the next n different stages that it uses. A stage is unsharded when it
// enters the window of lookahead + 1, and freed when it leaves the window of residency + 1. With
// equal values, this is the rule of torch's pipelining/schedules.py (_add_unshard_reshard,
// max_active_stages = lookahead + 1), in linear time. A lookahead below the residency spreads the
// UNSHARDs over the step instead of issuing those of all resident stages at its start; by rank, it
// is unshard_lookahead "auto" of torch 2.15. RECOMPUTE reads weights too, so run recompute
// first. Run split or merge first as well, since they move the last use. REDUCE_GRAD follows the
// UNSHARD of the next stage, which compute waits for.
#include <algorithm>
#include <optional>

#include "schedule/passes/lanes.h"
#include "schedule/passes/pass_table.h"

namespace penstock {
namespace {

constexpr int kNobody = -1;

bool ReadsWeights(Op op) { return IsCompute(op) || op == Op::kRecompute; }

// The stages that a rank uses next, each once, in order of use. Walks the lane backwards: each use
// moves its stage to the front, so a step changes the window of the first `size` stages by at most
// one.
class NextUses {
 public:
  NextUses(std::size_t stages, int size)
      : size_(size), before_(stages, kNobody), after_(stages, kNobody), state_(stages) {}

  // The effect of one use, going backwards: whether the stage was outside the window after this
  // use, and the stage that enters that window in its place, if any.
  struct Change {
    bool leaves = false;
    int enters = kNobody;
  };
  Change Use(int stage) {
    Change change;
    const State state = state_[stage];
    if (state != State::kInWindow) {
      change.leaves = true;
      if (state == State::kListed) Unlink(stage);
      PushFront(stage);
      if (count_ < size_) {
        ++count_;
        if (count_ == 1) last_ = stage;
      } else {
        change.enters = last_;
        state_[last_] = State::kListed;
        last_ = before_[last_];
      }
      state_[stage] = State::kInWindow;
    } else if (stage != first_) {
      if (stage == last_) last_ = before_[stage];
      Unlink(stage);
      PushFront(stage);
    }
    return change;
  }

  std::vector<int> Window() const {
    std::vector<int> stages;
    for (int s = first_; s != kNobody && state_[s] == State::kInWindow; s = after_[s]) {
      stages.push_back(s);
    }
    return stages;
  }

 private:
  enum class State : std::uint8_t { kUnused, kListed, kInWindow };

  void Unlink(int stage) {
    const int before = before_[stage];
    const int after = after_[stage];
    (before == kNobody ? first_ : after_[before]) = after;
    if (after != kNobody) before_[after] = before;
  }
  void PushFront(int stage) {
    before_[stage] = kNobody;
    after_[stage] = first_;
    if (first_ != kNobody) before_[first_] = stage;
    first_ = stage;
  }

  const int size_;
  int count_ = 0;  // stages in the window
  int first_ = kNobody;
  int last_ = kNobody;               // of the window
  std::vector<int> before_, after_;  // in the list, by local stage
  std::vector<State> state_;
};

// The stages that enter and leave the window of a size after each use of a lane, and the window at
// its start.
struct Windows {
  Windows(const std::vector<int>& uses, std::size_t stages, int size) : changes(uses.size()) {
    NextUses next_uses(stages, size);
    for (std::size_t use = uses.size(); use-- > 0;) changes[use] = next_uses.Use(uses[use]);
    first = next_uses.Window();
  }

  std::vector<NextUses::Change> changes;  // by use
  std::vector<int> first;
};

// Shards one rank's lane.
class LaneSharder {
 public:
  LaneSharder(const Schedule& schedule, int rank, const ShardingOptions& options)
      : lane_(schedule.lanes[rank]),
        stages_(schedule.placement.stages_of(rank)),
        local_of_(schedule.stages(), kNobody) {
    for (std::size_t i = 0; i < stages_.size(); ++i) {
      local_of_[stages_[i]] = static_cast<int>(i);
    }
    bool pairs = false;
    for (const Action& action : lane_) {
      pairs = pairs || action.is_pair();
      if (!ReadsWeights(action.first.op)) continue;
      ForEachPart(action, [&](const Part& part) { uses_.push_back(Local(part)); });
    }
    // A larger window than all stages has no effect.
    const auto window = [&](int others) {
      return std::max(std::min(others, schedule.stages()) + 1, pairs ? 2 : 1);
    };
    early_.emplace(uses_, stages_.size(), window(options.lookahead));
    const int residency = std::max(options.residency.value_or(0), options.lookahead);
    kept_.emplace(uses_, stages_.size(), window(residency));
    last_use_.assign(stages_.size(), 0);
    for (std::size_t use = 0; use < uses_.size(); ++use) last_use_[uses_[use]] = use;
  }

  // With `gradients`, which counts over all lanes, also adds REDUCE_GRAD.
  Lane Run(GradientCounter* gradients) {
    gathered_.assign(stages_.size(), false);
    out_.reserve(lane_.size() + lane_.size() / 4 + 3 * stages_.size());
    for (const int stage : early_->first) Gather(stage);
    std::size_t use = 0;
    for (const Action& action : lane_) {
      out_.push_back(action);
      if (ReadsWeights(action.first.op)) {
        ForEachPart(action, [&](const Part&) { Move(use++); });
      }
      if (gradients == nullptr) continue;
      ForEachPart(action, [&](const Part& part) {
        for (int left = gradients->Note(part); left > 0; --left) {
          out_.push_back(MakeAction(Op::kReduceGrad, part.stage));
        }
      });
    }
    return std::move(out_);
  }

 private:
  int Local(const Part& part) const { return local_of_[part.stage]; }

  // Applies the changes of the windows after a use.
  void Move(std::size_t use) {
    const int stage = uses_[use];
    if (last_use_[stage] == use || kept_->changes[use].leaves) {
      gathered_[stage] = false;
      out_.push_back(MakeAction(Op::kReshard, stages_[stage]));
    }
    const int enters = early_->changes[use].enters;
    if (enters != kNobody) Gather(enters);
  }

  void Gather(int stage) {
    if (gathered_[stage]) return;
    gathered_[stage] = true;
    out_.push_back(MakeAction(Op::kUnshard, stages_[stage]));
  }

  const Lane& lane_;
  const std::vector<int>& stages_;  // the rank's, by local number
  std::vector<int> local_of_;       // by stage
  std::vector<int> uses_;           // of weights, by local stage
  std::optional<Windows> early_, kept_;
  std::vector<std::size_t> last_use_;  // by local stage
  std::vector<bool> gathered_;         // by local stage
  Lane out_;
};

// Returns the lanes with a RESHARD of each stage that stays unsharded, after its last reader.
std::vector<Lane> ReshardAtEnd(const Schedule& schedule) {
  std::vector<Lane> lanes;
  for (const Lane& lane : schedule.lanes) {
    std::vector<bool> seen(Index(schedule.stages()));  // from the end
    Lane reversed;
    for (std::size_t i = lane.size(); i-- > 0;) {
      ForEachPart(lane[i], [&](const Part& part) {
        const bool needs = ReadsWeights(part.op) || part.op == Op::kUnshard;
        if (seen[part.stage] || (!needs && part.op != Op::kReshard)) return;
        seen[part.stage] = true;
        if (needs) reversed.push_back(MakeAction(Op::kReshard, part.stage));
      });
      reversed.push_back(lane[i]);
    }
    lanes.emplace_back(reversed.rbegin(), reversed.rend());
  }
  return lanes;
}

}  // namespace

Result<Schedule> AddSharding(const Schedule& schedule, const ShardingOptions& options) {
  const int residency = options.residency.value_or(0);
  if (options.lookahead < 0 || residency < 0) {
    return InvalidArgument("sharding with lookahead {} and residency {}: must be at least 0",
                           options.lookahead, residency);
  }
  if (HasOps(schedule, OpBit(Op::kUnshard))) return WithLanes(schedule, ReshardAtEnd(schedule));
  const bool reduces = HasOps(schedule, OpBit(Op::kReduceGrad));
  GradientCounter gradients(schedule);
  std::vector<Lane> lanes;
  for (int rank = 0; rank < schedule.ranks(); ++rank) {
    ShardingOptions own = options;
    if (options.lookahead_by_rank) {
      own.lookahead = std::min(rank + 1, options.residency.value_or(kResidentToTheEnd));
    }
    LaneSharder sharder(schedule, rank, own);
    lanes.push_back(sharder.Run(reduces ? nullptr : &gradients));
  }
  return WithLanes(schedule, std::move(lanes));
}

SchedulePass ShardingPass() {
  return {"sharding", "[LOOKAHEAD|rank[:RESIDENCY]][:keep]",
          "UNSHARD up to LOOKAHEAD (1) stages early (rank: r + 1 on rank r), RESHARD unless used "
          "again within RESIDENCY stages (keep: after the last use), REDUCE_GRAD",
          [](const Schedule& schedule, PassArguments arguments,
             const PassContext&) -> Result<Schedule> {
            ShardingOptions options;
            options.lookahead_by_rank = arguments.TakeWord("rank");
            if (!options.lookahead_by_rank) {
              options.lookahead = arguments.TakeCount().value_or(options.lookahead);
            }
            options.residency = arguments.TakeCount();
            if (arguments.TakeWord("keep")) options.residency = kResidentToTheEnd;
            PENSTOCK_TRY_STATUS(arguments.Done());
            return AddSharding(schedule, options);
          }};
}

}  // namespace penstock
