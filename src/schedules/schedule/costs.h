// Costs: the time and memory of every action of a schedule, in the units of stage_costs.h.
#pragma once

#include <algorithm>
#include <vector>

#include "base/index.h"
#include "schedule/action.h"
#include "schedule/schedule.h"
#include "schedule/stage_costs.h"
#include "schedule/topology.h"

namespace penstock {

// The time of an overlapped pair, from its forward f and its backward b.
struct OverlapRule {
  enum class Kind { kMax, kSum, kFactor } kind = Kind::kMax;
  double factor = 1;  // kFactor: factor * (f + b)

  double Price(double f, double b) const {
    switch (kind) {
      case Kind::kMax:
        return std::max(f, b);
      case Kind::kSum:
        return f + b;
      case Kind::kFactor:
        return factor * (f + b);
    }
    return f + b;
  }
};

struct Costs {
  std::vector<StageCosts> stages;  // one per stage of the placement
  double comm = 0;                 // latency of a transfer between two ranks
  // Links with their own latencies and bandwidths, for messages of message_bytes. If there are any,
  // `comm` and `comm_by_level` are only what schedules are searched for with.
  Topology topology;
  // The time of a message by level of the topology, if it shares no link. Empty: `comm` for all.
  std::vector<double> comm_by_level;
  Transfers transfers = Transfers::kAsynchronous;
  // Latency from the last EMBED or S of a microbatch, over all ranks, until what they compute
  // together can be used.
  double exchange = 0;
  OverlapRule overlap;
  // Time per unit of memory to the slower pool and back, on a link in each direction that carries
  // one transfer at a time. Each group of `offload_sharing` consecutive ranks shares the two links;
  // the last group may have fewer.
  double offload = 0, reload = 0;
  int offload_sharing = 1;
  // Whether a STEP waits until every stage has its gradients, for their global norm (without
  // post-validation), or only until the stage and its replicas have theirs.
  bool steps_wait_for_all = false;
  // Whether a B that is not in a pair sends its input gradient after its I part, as stages in
  // training do, or at its end, as schedules are usually priced.
  bool early_gradients = false;
  // The size of one tensor between two stages at length 1 and scale 1; 0: unknown.
  double message_bytes = 0;
  // By stage, then by microbatch index modulo their number, if the slices of a sequence differ
  // (later ones attend to more) or the microbatches do. Empty if all cost what `stages` says.
  std::vector<StageCosts> by_slice;

  // Returns equal costs for all stages. f, i and w are of one rank's share of one microbatch: a
  // chunk costs 1/v of it and a slice 1/k of that, in time and in memory. W reads `kept_for_weight`
  // of the activations. RECOMPUTE takes as long as F.
  static Costs Uniform(const Placement& placement, int slices, double f, double i, double w,
                       double comm = 0, double kept_for_weight = 1);

  // Returns the time of a message between two ranks that schedules are searched for with; 0 for a
  // rank and itself.
  double Comm(int from_rank, int to_rank) const {
    if (from_rank == to_rank) return 0;
    return comm_by_level.empty() ? comm : comm_by_level[topology.LevelOf(from_rank, to_rank)];
  }
  // Sets comm_by_level for messages of so many bytes if the topology has several levels.
  void SetCommByLevel(double bytes);
  // Makes transfers take no time in searches.
  void ClearComm() {
    comm = 0;
    comm_by_level.clear();
  }
  // The costs of the part's stage, and of its microbatch index if these differ.
  const StageCosts& Of(const Part& part) const {
    if (by_slice.empty()) return stages[part.stage];
    const std::size_t slices = by_slice.size() / stages.size();
    return by_slice[part.stage * slices + Index(part.microbatch) % slices];
  }
  // The size of the message that the part sends, if it is an output of stage `output` or its
  // gradient.
  double MessageSize(int output, const Part& part) const {
    return message_bytes * (stages[Index(output)].message_scale * Of(part).length);
  }
  // The size of the largest tensor between two stages, at length 1.
  double LargestMessage() const;
  // The size of the smallest tensor between two stages, at the least length of a microbatch.
  double SmallestMessage() const;
  // Multiplies all times, or all amounts of memory, as a change of their unit does.
  void ScaleTimes(double factor);
  void ScaleMemory(double factor);
  // Calls change(StageCosts&) for every element of `stages` and `by_slice`.
  template <class Change>
  void ForEachStage(const Change& change) {
    for (StageCosts& stage : stages) change(stage);
    for (StageCosts& stage : by_slice) change(stage);
  }
  // Time of one part; 0 if it does not occupy the rank.
  double Duration(const Part& part) const {
    const StageCosts& stage = Of(part);
    switch (part.op) {
      case Op::kForward:
        return stage.forward;
      case Op::kBackwardInput:
        return stage.backward_input;
      case Op::kBackwardWeight:
        return stage.backward_weight;
      case Op::kBackward:
        return stage.Backward();
      case Op::kRecompute:
        return stage.recompute;
      case Op::kStep:
        return stage.step;
      case Op::kEmbed:
        return stage.embed;
      case Op::kVocabularyInput:
        return stage.vocabulary_input;
      case Op::kVocabularyWeight:
        return stage.vocabulary_weight;
      case Op::kEmbedGradient:
        return stage.embed_gradient;
      default:
        return 0;
    }
  }
  double Duration(const Action& action) const {
    if (!action.is_pair()) return Duration(action.first);
    return action.first.op == Op::kForward
               ? overlap.Price(Duration(action.first), Duration(action.second))
               : overlap.Price(Duration(action.second), Duration(action.first));
  }
  // Time of a transfer of `amount` of memory on one of the rank's links, concurrent with compute; 0
  // for parts that are no transfer.
  double TransferTime(const Part& part, double amount) const {
    switch (part.op) {
      case Op::kUnshard:
        return stages[part.stage].unshard;
      case Op::kReduceGrad:
        return stages[part.stage].reduce;
      case Op::kOffload:
        return amount * offload;
      case Op::kReload:
        return amount * reload;
      default:
        return 0;
    }
  }
};

}  // namespace penstock
