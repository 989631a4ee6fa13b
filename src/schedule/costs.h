// Costs: the time and memory of every action of a schedule, defined only here.
//
// Units: time in any one unit; memory in activations of one rank's share of one microbatch, or in
// bytes if the costs come from a measured model.
#pragma once

#include <algorithm>
#include <vector>

#include "base/index.h"
#include "base/result.h"
#include "schedule/action.h"
#include "schedule/schedule.h"
#include "schedule/topology.h"

namespace penstock {

// The longest time and largest amount of memory of one cost. Within them, sums over any schedule
// stay finite, and their figures are short enough to print.
inline constexpr double kMostTime = 1e15;
inline constexpr double kMostMemory = 1e18;  // in bytes, a million terabytes

// Refuses a cost below 0 or above the maximum. The caller adds which cost it is.
Status CheckTime(double time);
Status CheckMemory(double amount);

// The costs of one stage and one microbatch index (a microbatch, or a slice of one).
struct StageCosts {
  double forward = 1;
  double backward_input = 1;
  double backward_weight = 1;
  double activation = 1;          // kept alive from the start of F to the end of B or W
  double activation_after_i = 1;  // the part of it that W reads, freed at the end of W
  // Costs of the actions that passes add. 0 means that they take no time or memory.
  double recompute = 0;         // time of RECOMPUTE, which occupies the rank
  double input_activation = 0;  // the part of `activation` that F keeps if it is recomputed
  double step = 0;              // time of STEP, which occupies the rank
  double unshard = 0;           // time of UNSHARD, on the rank's link for collectives
  double reduce = 0;            // time of REDUCE_GRAD, on the same link
  double gathered = 0;          // memory of the unsharded weights, from UNSHARD's start to RESHARD
  // Memory that no microbatch changes (simulate/memory/memory_by_kind.h). Peaks and memory limits
  // are without it.
  double weights = 0;    // of one version, with masters
  double version = 0;    // of each older version that a schedule without a flush keeps
  double gradients = 0;  // their sums over microbatches
  double optimizer = 0;  // state
  double workspace = 0;  // temporary, while one of the stage's actions computes
  // Costs of the vocabulary's actions (vocabulary.h) on the rank whose first stage this is, for one
  // microbatch.
  double embed = 0;              // time of EMBED
  double vocabulary_input = 0;   // time of S
  double vocabulary_weight = 0;  // time of T
  double embed_gradient = 0;     // time of EMBED_GRAD
  double softmax = 0;            // memory from the start of S to the end of T
  // Per slice: the change in memory after its I or B ends. The backward of the last slice
  // produces gradients of the keys and values of all earlier slices, and each earlier slice frees
  // its own. Over the slices of a stage the changes add up to 0.
  double gradients_of_others = 0;
  // The time that a whole B takes less than I and W: it may read its inputs once, and needs one
  // launch. At most their sum.
  double saved_by_whole_backward = 0;
  // Relative length of the microbatch: prices per microbatch and sizes of messages scale with it.
  double length = 1;
  // Size of the stage's output, and of the gradient that it receives for it, relative to
  // Costs::message_bytes.
  double message_scale = 1;

  // Time of B; not below 0 by rounding.
  double Backward() const {
    return std::max(0.0, backward_input + backward_weight - saved_by_whole_backward);
  }
  // Memory that I, W, B or T frees at its end; negative if it allocates more than it frees.
  double Freed(Op op) const {
    switch (op) {
      case Op::kBackward:
        return activation - gradients_of_others;
      case Op::kBackwardInput:
        return activation - activation_after_i - gradients_of_others;
      case Op::kBackwardWeight:
        return activation_after_i;
      case Op::kVocabularyWeight:
        return softmax;
      default:
        return 0;
    }
  }
};

// The fields of StageCosts that are times, and those that are amounts of memory and never negative:
// what a change of the unit scales.
inline constexpr double StageCosts::*kTimesOfStage[] = {&StageCosts::forward,
                                                        &StageCosts::backward_input,
                                                        &StageCosts::backward_weight,
                                                        &StageCosts::saved_by_whole_backward,
                                                        &StageCosts::recompute,
                                                        &StageCosts::step,
                                                        &StageCosts::unshard,
                                                        &StageCosts::reduce,
                                                        &StageCosts::embed,
                                                        &StageCosts::vocabulary_input,
                                                        &StageCosts::vocabulary_weight,
                                                        &StageCosts::embed_gradient};
inline constexpr double StageCosts::*kMemoryOfStage[] = {
    &StageCosts::activation,       &StageCosts::activation_after_i,
    &StageCosts::input_activation, &StageCosts::gathered,
    &StageCosts::softmax,          &StageCosts::weights,
    &StageCosts::version,          &StageCosts::gradients,
    &StageCosts::optimizer,        &StageCosts::workspace};

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
  // `comm` is only what schedules are searched for with.
  Topology topology;
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
