// Pairs a forward with an adjacent, independent backward, so that the messages of one overlap with
// the compute of the other.
//
//   before   0F3 3F0 3B0 0F4 3B1 0B0
//   after    0F3 3F0 3B0 (0F4;3B1)OVERLAP_F_B 0B0
//
// Two adjacent actions are independent if neither needs, via whatever ranks, what the other
// produces. But pairs on several ranks may wait for each other even if each alone would not. So the
// pass runs the schedule: a rank that reaches two such actions holds the first back until the
// inputs of the second are available too, and pairs them. When nothing else can run, the action
// that has been ready the longest runs alone. The order of this run proves that the pairs cannot
// deadlock.
//   ready (default)   pairs only if the inputs of the second are available when the first could
//                     start, so that pairing delays neither
//   all               pairs whatever can be paired
// A SEND between two actions keeps them apart, so run communication later. Only a whole B is paired
// (as in torch), so merge I and W first where a pair is wanted.
// DeepSeek-AI, DualPipe, 2025; torch.distributed.pipelining, OVERLAP_F_B.
#include <algorithm>
#include <functional>
#include <queue>
#include <utility>

#include "base/index.h"
#include "schedule/passes/lanes.h"
#include "schedule/passes/pass_table.h"
#include "schedule/stage_edges.h"
#include "schedule/validate/validate.h"

namespace penstock {
namespace {

bool MayPair(const Action& first, const Action& second) {
  if (first.is_pair() || second.is_pair()) return false;
  const Op a = first.first.op;
  const Op b = second.first.op;
  return (a == Op::kForward && b == Op::kBackward) || (a == Op::kBackward && b == Op::kForward);
}

class Pairing {
 public:
  Pairing(const Schedule& schedule, const Costs& costs, bool all)
      : schedule_(schedule),
        costs_(costs),
        all_(all),
        sends_(HasOps(schedule, OpBit(Op::kSendForward) | OpBit(Op::kSendBackward))),
        indices_(Index(schedule.indices())),
        edges_(EdgesOf(schedule)),
        arrival_(2 * indices_ * Index(schedule.stages()), kUnavailable),
        ranks_(schedule.lanes.size()) {}

  std::vector<Lane> Run() {
    for (int rank = schedule_.ranks() - 1; rank >= 0; --rank) runnable_.push_back(rank);
    for (;;) {
      while (!runnable_.empty()) {
        const int rank = runnable_.back();
        runnable_.pop_back();
        RunLane(rank, false);
      }
      // Drop entries of ranks that have moved on since.
      while (!held_.empty() && !ranks_[held_.top().second].Holds(held_.top().first)) {
        held_.pop();
      }
      if (held_.empty()) break;
      const int rank = held_.top().second;
      held_.pop();
      RunLane(rank, true);
    }
    std::vector<Lane> lanes;
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      PENSTOCK_CHECK(ranks_[r].position == schedule_.lanes[r].size(),
                     "rank {} waits forever: the schedule is not valid", r);
      lanes.push_back(std::move(ranks_[r].lane));
    }
    return lanes;
  }

 private:
  static constexpr double kUnavailable = -1;
  static constexpr std::size_t kNothing = ~std::size_t{0};

  struct RankState {
    std::size_t position = 0;
    double clock = 0;
    double ready = -1;  // when the held action could start; negative while none is held
    std::size_t waits_for = kNothing;
    Lane lane;
    bool Holds(double time) const { return ready == time; }
  };
  using Held = std::pair<double, int>;  // start time, rank

  std::size_t Key(ValueKind kind, int stage, int microbatch) const {
    return 2 * (Index(stage) * indices_ + Index(microbatch)) + Index(kind);
  }

  // Runs the rank's lane until it waits, holds an action back, or ends. With `release` the held
  // action runs alone.
  void RunLane(int rank, bool release) {
    RankState& state = ranks_[rank];
    const Lane& lane = schedule_.lanes[rank];
    while (state.position < lane.size()) {
      const Action& action = lane[state.position];
      if (!IsCompute(action)) {
        RunOther(action.first, state);
        continue;
      }
      double start = state.clock;
      if (!Inputs(action, rank, start)) return;
      const bool more = state.position + 1 < lane.size();
      if (more && MayPair(action, lane[state.position + 1]) && !release) {
        const Action& next = lane[state.position + 1];
        if (DependsDirectly(action.first, next.first)) {
          // It needs what the first produces, so they cannot be paired.
        } else if (double both = start; Inputs(next, rank, both)) {
          if (all_ || both <= start) {
            Emit(action.first.op == Op::kForward ? Overlap(action, next) : Overlap(next, action),
                 both, state);
            state.position += 2;
            continue;
          }
        } else {
          if (state.ready != start) held_.push({start, rank});
          state.ready = start;
          return;
        }
      }
      release = false;
      Emit(action, start, state);
      ++state.position;
    }
  }

  // Whether the second reads what the first produces on this rank.
  bool DependsDirectly(const Part& first, const Part& second) const {
    bool depends = false;
    ForEachDependency(ChainShape::Of(schedule_), second, [&](const Value& value) {
      depends = depends || (value.kind == MadeBy(first.op) && value.stage == first.stage &&
                            value.microbatch == first.microbatch);
    });
    return depends;
  }

  // Raises `start` to when all inputs of the action are available. Returns false if one is not yet.
  bool Inputs(const Action& action, int rank, double& start) {
    bool available = true;
    ForEachPart(action, [&](const Part& part) {
      ForEachDependency(ChainShape::Of(schedule_), part, [&](const Value& value) {
        if (edges_[value.stage].rank == rank) return;
        const std::size_t key = Key(value.kind, value.stage, value.microbatch);
        if (arrival_[key] == kUnavailable) {
          available = false;
          ranks_[rank].waits_for = key;
        } else {
          start = std::max(start, arrival_[key]);
        }
      });
    });
    return available;
  }

  void RunOther(const Part& part, RankState& state) {
    if (OccupiesRank(part.op)) state.clock += costs_.Duration(part);
    state.lane.push_back({part, {}});
    ++state.position;
    if (part.op == Op::kSendForward) Publish(part, ValueKind::kActivation, state.clock);
    if (part.op == Op::kSendBackward) Publish(part, ValueKind::kGradient, state.clock);
  }

  void Emit(const Action& action, double start, RankState& state) {
    state.ready = -1;
    state.clock = start + costs_.Duration(action);
    state.lane.push_back(action);
    if (sends_) return;
    ForEachPart(action, [&](const Part& part) {
      if (part.op != Op::kBackwardWeight) Publish(part, MadeBy(part.op), state.clock);
    });
  }

  void Publish(const Part& part, ValueKind kind, double time) {
    const StageEdges& edges = edges_[part.stage];
    const int reader = kind == ValueKind::kActivation ? edges.next_rank : edges.gradient_to;
    if (reader < 0) return;
    const std::size_t key = Key(kind, part.stage, part.microbatch);
    arrival_[key] = time + costs_.comm;
    RankState& state = ranks_[reader];
    if (state.waits_for != key) return;
    state.waits_for = kNothing;
    runnable_.push_back(reader);
  }

  const Schedule& schedule_;
  const Costs& costs_;
  const bool all_;
  const bool sends_;  // values leave a rank only by a SEND
  const std::size_t indices_;
  std::vector<StageEdges> edges_;
  std::vector<double> arrival_;  // by value: when the other rank can read it
  std::vector<RankState> ranks_;
  std::vector<int> runnable_;
  std::priority_queue<Held, std::vector<Held>, std::greater<>> held_;
};

}  // namespace

Schedule PairForwardBackward(const Schedule& schedule, const Costs& costs,
                             const OverlapOptions& options) {
  Schedule paired = WithLanes(schedule, Pairing(schedule, costs, options.all).Run());
  // A STEP between other actions may wait for replicas' gradients, and a WAIT_SEND for a RECV,
  // which this run does not model.
  const bool steps_wait = schedule.placement.replicas() > 1 && HasOps(schedule, OpBit(Op::kStep));
  const bool others_wait = steps_wait || HasWaitSend(schedule);
  if (others_wait && !Validate(paired, {.max_faults = 1}).empty()) return schedule;
  return paired;
}

SchedulePass OverlapPass() {
  return {"overlap", "[all]",
          "pair adjacent F and B: where that delays neither, or all that are independent",
          [](const Schedule& schedule, PassArguments arguments,
             const PassContext& context) -> Result<Schedule> {
            const OverlapOptions options{.all = arguments.TakeWord("all")};
            PENSTOCK_TRY_STATUS(arguments.Done());
            if (schedule.vocabulary) {
              return InvalidArgument("schedules with a sharded vocabulary run no pairs");
            }
            return PairForwardBackward(schedule, context.costs, options);
          }};
}

}  // namespace penstock
