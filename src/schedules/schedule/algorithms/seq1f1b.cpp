// Seq1F1B: each microbatch is split into k slices along the sequence, so that 1F1B's unit of work,
// and with it bubble and memory, shrinks by k. With causal attention a slice depends only on those
// before it.
//
//   rank 0 of 2, m = 2, k = 2 (slices 0 1 | 2 3)   F0 F1 F2 B1 F3 B0 B3 B2
//   rank 1                                         F0 F1 B1 F2 B0 F3 B3 B2
//
// Forwards go in order of slices; backwards by microbatch with the last slice first, since
// gradients of later slices flow into the keys and values of earlier ones. min(mk, p-1-r + k-1)
// forwards, then alternately F and B. Makespan (mk + p-1)(F + B)/k, peak memory (p + k-1)/k. The
// split form has the same warm-up, then continues as ZB-H1: (3mk + p-1)/k for F = I = W = 1. Two
// chunks form a vee, with the same memory, and no slower if transfers take no time.
//
// On the vee: list scheduling in the same orders, with room for p + k-1 slices. Starting whatever
// is ready would fill that room with slices on their way down and leave none for the way up. So
// actions are preferred by their start in ZB-V's pattern, which repeats for every slice, whether or
// not the backward is split.
// Sun et al., Seq1F1B: Efficient Sequence-Level Pipeline Parallelism, 2024, section 3.
#include "schedule/algorithms/algorithms.h"
#include "schedule/algorithms/split_turns.h"
#include "schedule/algorithms/zbv.h"
#include "schedule/search/list_scheduler.h"
#include "schedule/search/order_for_costs.h"
#include "schedule/search/problem/average_times.h"

namespace penstock {
namespace {

// Returns the microbatch indices of backwards in order: by microbatch, the last slice first.
class BackwardOrder {
 public:
  explicit BackwardOrder(int slices) : slices_(slices), index_(slices) {}
  int Next() {
    const int index = --index_;
    if (index_ % slices_ == 0) index_ += 2 * slices_;
    return index;
  }

 private:
  const int slices_;
  int index_;  // one above the next
};

Lane LinearLane(const ScheduleParams& params, int rank) {
  const int count = params.microbatches * params.slices;
  const int warmup = std::min(count, params.ranks - 1 - rank + params.slices - 1);
  const auto forward = [rank, n = 0]() mutable { return Forward(rank, n++); };
  BackwardOrder order(params.slices), weight_order(params.slices);
  if (!params.split) {
    return WarmUpThenAlternate(count, warmup, forward,
                               [rank, order]() mutable { return Backward(rank, order.Next()); });
  }
  return WarmUpThenSplitTurns(
      {count, warmup, rank}, forward,
      [rank, order]() mutable { return BackwardInput(rank, order.Next()); },
      [rank, weight_order]() mutable { return BackwardWeight(rank, weight_order.Next()); });
}

// Prefers actions by start in ZB-V's pattern. The slices of a microbatch return from the last, so
// its backwards are k-1 periods later than without slices.
ListRule ByPattern(const Problem& problem) {
  const PeriodPattern pattern = ZbvPattern(problem.placement.ranks());
  ListRule rule;
  rule.forward = {pattern.forward, pattern.period};
  rule.backward = {pattern.backward, pattern.period};
  rule.weight = {pattern.weight, pattern.period};
  for (Preference* later : {&rule.backward, &rule.weight}) {
    for (double& offset : later->offset) offset += pattern.period * (problem.slices - 1);
  }
  return rule;
}

std::vector<Lane> VeeLanes(const Problem& problem) {
  ListScheduler scheduler(problem);
  std::vector<Lane> lanes;
  double shortest = kNever;
  const auto add = [&](const ListRule& rule) {
    const double makespan = scheduler.Run(rule, shortest);
    if (makespan >= shortest) return;
    shortest = makespan;
    lanes = scheduler.lanes();
  };
  ListRule by_pattern = ByPattern(problem);
  by_pattern.patience = 1;
  add(by_pattern);
  if (HasEqualTimes(problem)) return lanes;
  for (const double patience : {0.5, 0.0}) {
    by_pattern.patience = patience;
    add(by_pattern);
  }
  // If transfers take long, no pattern fits.
  ListRule backward_first = ListRule::BackwardFirst(problem.placement, problem.indices);
  backward_first.window = problem.placement.ranks() + problem.slices - 1;
  add(backward_first);
  return lanes;
}

Schedule GenerateVee(const ScheduleParams& params) {
  Schedule schedule = EmptySchedule(Placement::Vee(params.ranks), params);
  const Costs costs =
      CountingMicrobatches(CostsOf(params, schedule.placement), schedule.placement, params.slices);
  const double limit = (params.ranks + params.slices - 1.0) / params.slices;
  schedule.lanes = OrderForCosts(
      {schedule.placement, costs, schedule.indices(), params.slices, params.split, limit},
      [](const Problem& problem) { return Squeezed(problem, VeeLanes(problem)); });
  return schedule;
}

Schedule GenerateSeq1f1b(const ScheduleParams& params) {
  if (params.chunks == 2) return GenerateVee(params);
  Schedule schedule = EmptySchedule(Placement::Linear(params.ranks), params);
  for (int rank = 0; rank < params.ranks; ++rank) {
    schedule.lanes[rank] = LinearLane(params, rank);
  }
  return schedule;
}

ClosedForm Seq1f1bFigures(const ScheduleParams& params) {
  ClosedForm form;
  if (params.chunks == 2) return form;
  const double p = params.ranks, k = params.slices;
  const double indices = static_cast<double>(params.microbatches) * k;
  form.peak_memory = std::min(indices, p + k - 1) / k;
  if (params.costs || params.comm != 0) return form;
  if (!params.split) form.makespan = (indices + p - 1) * *UniformWork(params) / k;
  if (params.split && EqualTimes(params) && indices >= p + k - 1) {
    form.makespan = (3 * indices + p - 1) * params.forward / k;
  }
  return form;
}

}  // namespace

Algorithm Seq1f1b() {
  Algorithm algorithm;
  algorithm.name = "seq1f1b";
  algorithm.summary =
      "1f1b over slices of the sequence: bubble and memory shrink with their number";
  algorithm.when =
      "For long sequences with causal attention: k slices divide the bubble and the activations "
      "by about k. Needs a model that keeps the keys and values of earlier slices.";
  algorithm.placement = PlacementForm::kZigzag;
  algorithm.constraint = "causal attention; 1 chunk, or 2 for a vee";
  algorithm.makespan = "(mk+p-1)(F+B)/k; split (3mk+p-1)/k for mk >= p+k-1";
  algorithm.memory = "min(mk, p+k-1)/k";
  algorithm.source = "Sun et al., Seq1F1B, 2024, section 3";
  algorithm.supported = {
      .min_chunks = 1, .max_chunks = 2, .default_chunks = 1, .slices = true, .split = true};
  algorithm.generate = GenerateSeq1f1b;
  algorithm.closed_form = Seq1f1bFigures;
  return algorithm;
}

}  // namespace penstock
