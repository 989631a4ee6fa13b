// Seq1F1B: each microbatch is cut into k pieces along the sequence, so that 1F1B's unit, and with
// it bubble and memory, shrinks by k. Causal attention lets a piece run after those before it.
//
//   rank 0 of 2, m = 2, k = 2 (rows 0 1 | 2 3)   F0 F1 F2 B1 F3 B0 B3 B2
//   rank 1                                       F0 F1 B1 F2 B0 F3 B3 B2
//
// Forwards by row; backwards by microbatch, pieces from the last, since later pieces' gradients
// flow into earlier ones' keys and values. min(mk, p-1-r + k-1) forwards, then F and B in turn.
// Makespan (mk + p-1)(F + B)/k, peak (p + k-1)/k. `--split`: the same warm-up, then as ZB-H1: (3mk
// + p-1)/k for F = I = W = 1. With --chunks 2, on a vee: list scheduling in the same orders, p +
// k-1 pieces in flight. Sun et al., Seq1F1B: Efficient Sequence-Level Pipeline Parallelism, 2024,
// section 3.
#include "schedule/algorithms/algorithms.h"
#include "schedule/algorithms/list_scheduler.h"
#include "schedule/algorithms/order_for_costs.h"
#include "schedule/algorithms/split_turns.h"

namespace penstock {
namespace {

// Gives the rows of backwards in turn: by microbatch, pieces from the last.
class BackwardRows {
 public:
  explicit BackwardRows(int cuts) : cuts_(cuts), row_(cuts) {}
  int Next() {
    const int row = --row_;
    if (row_ % cuts_ == 0) row_ += 2 * cuts_;
    return row;
  }

 private:
  const int cuts_;
  int row_;  // one above the next
};

Lane LinearLane(const ScheduleParams& params, int rank) {
  const int count = params.microbatches * params.cuts;
  const int warmup = std::min(count, params.ranks - 1 - rank + params.cuts - 1);
  const auto forward = [rank, n = 0]() mutable { return Forward(rank, n++); };
  BackwardRows rows(params.cuts), weight_rows(params.cuts);
  if (!params.split) {
    return WarmUpThenAlternate(count, warmup, forward,
                               [rank, rows]() mutable { return Backward(rank, rows.Next()); });
  }
  return WarmUpThenSplitTurns(
      {count, warmup, rank}, forward,
      [rank, rows]() mutable { return BackwardInput(rank, rows.Next()); },
      [rank, weight_rows]() mutable { return BackwardWeight(rank, weight_rows.Next()); });
}

std::vector<Lane> VeeLanes(const Problem& problem) {
  ListScheduler scheduler(problem);
  ListRule rule = ListRule::BackwardFirst(problem.placement, problem.rows);
  rule.window = problem.placement.ranks() + problem.cuts - 1;
  scheduler.Run(rule);
  return scheduler.TakeLanes();
}

Schedule GenerateVee(const ScheduleParams& params) {
  Schedule schedule = EmptySchedule(Placement::Vee(params.ranks), params);
  const Costs costs =
      CountingMicrobatches(CostsOf(params, schedule.placement), schedule.placement, params.cuts);
  const double limit = (params.ranks + params.cuts - 1.0) / params.cuts;
  schedule.lanes = SqueezedOrderForCosts(
      {schedule.placement, costs, schedule.rows(), params.cuts, params.split, limit}, VeeLanes);
  return schedule;
}

Schedule GenerateSeq1f1b(const ScheduleParams& params) {
  if (params.chunks == 2) return GenerateVee(params);
  Schedule schedule = EmptySchedule(Placement::Linear(params.ranks), params);
  for (int rank = 0; rank < params.ranks; ++rank) {
    schedule.lanes[static_cast<std::size_t>(rank)] = LinearLane(params, rank);
  }
  return schedule;
}

ClosedForm Figures(const ScheduleParams& params) {
  ClosedForm form;
  if (params.chunks == 2) return form;
  const double p = params.ranks, k = params.cuts;
  const double rows = static_cast<double>(params.microbatches) * k;
  form.peak_memory = std::min(rows, p + k - 1) / k;
  if (params.costs || params.comm != 0) return form;
  if (!params.split) form.makespan = (rows + p - 1) * *UniformWork(params) / k;
  if (params.split && EqualTimes(params) && rows >= p + k - 1) {
    form.makespan = (3 * rows + p - 1) * params.forward / k;
  }
  return form;
}

}  // namespace

Algorithm Seq1f1b() {
  Algorithm algorithm;
  algorithm.name = "seq1f1b";
  algorithm.summary = "1f1b over pieces of the sequence: bubble and memory shrink with them";
  algorithm.when =
      "For long sequences under causal attention: k cuts divide the bubble and the activations "
      "by about k. Needs a model that keeps keys and values of earlier cuts.";
  algorithm.placement = PlacementForm::kZigzag;
  algorithm.constraint = "causal attention; 1 chunk, or 2 for a vee";
  algorithm.makespan = "(mk+p-1)(F+B)/k; with --split (3mk+p-1)/k for mk >= p+k-1";
  algorithm.memory = "min(mk, p+k-1)/k";
  algorithm.source = "Sun et al., Seq1F1B, 2024, section 3";
  algorithm.knobs = {
      .min_chunks = 1, .max_chunks = 2, .default_chunks = 1, .cuts = true, .split = true};
  algorithm.generate = GenerateSeq1f1b;
  algorithm.closed_form = Figures;
  return algorithm;
}

}  // namespace penstock
