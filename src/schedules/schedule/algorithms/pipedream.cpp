// PipeDream and PipeDream-2BW: 1F1B that never drains the pipeline. Microbatch indices continue
// over all steps, and weights are updated while later microbatches are in flight.
//
//   pipedream, rank 0 of 2, m = 2, 2 steps      F0 F1 B0 STEP F2 B1 STEP F3 B2 STEP B3 STEP
//   pipedream-2bw, the same                     F0 F1 B0 F2 B1 STEP F3 B2 B3 STEP
//
// PipeDream updates after every microbatch. The B of a microbatch reads the version that its F
// read, so rank r keeps p - r versions. 2BW updates once per batch and lags one whole batch
// everywhere, so that two versions are enough: W(t+1) = W(t) - lr grad_t(W(t-1)). This needs m >=
// p: with fewer microbatches, a third version is still read when the second is overwritten.
// Narayanan et al., PipeDream, SOSP 2019, section 3.3; Memory-Efficient Pipeline-Parallel DNN
// Training, ICML 2021, section 3.1 (2BW).
#include "base/index.h"
#include "schedule/algorithms/algorithms.h"

namespace penstock {
namespace {

// Generates 1F1B over all steps, with a STEP after every `update_every`-th backward.
Schedule GenerateContinuous(const ScheduleParams& params, WeightPolicy weights, int update_every) {
  Schedule schedule = EmptySchedule(Placement::Linear(params.ranks), params);
  schedule.weights = weights;
  const int indices = schedule.indices();
  for (int rank = 0; rank < params.ranks; ++rank) {
    const int warmup = std::min(indices, params.ranks - 1 - rank);
    Lane& lane = schedule.lanes[rank];
    lane.reserve(2 * Index(indices) + Index(indices / update_every));
    for (int n = 0; n < warmup; ++n) lane.push_back(Forward(rank, n));
    for (int n = 0; n < indices; ++n) {
      if (n + warmup < indices) lane.push_back(Forward(rank, n + warmup));
      lane.push_back(Backward(rank, n));
      if ((n + 1) % update_every == 0) lane.push_back(MakeAction(Op::kStep, rank));
    }
  }
  return schedule;
}

Schedule GeneratePipeDream(const ScheduleParams& params) {
  return GenerateContinuous(params, WeightPolicy::kStashed, 1);
}

Schedule GeneratePipeDream2bw(const ScheduleParams& params) {
  return GenerateContinuous(params, WeightPolicy::kDoubleBuffered, params.microbatches);
}

Status CheckPipeDream2bw(const ScheduleParams& params) {
  if (params.microbatches < params.ranks) {
    return InvalidParameter(
        "microbatches", "{}: must be at least one per rank, {}, for two weight versions to suffice",
        params.microbatches, params.ranks);
  }
  return {};
}

// As 1F1B over the microbatches of all steps.
ClosedForm PipedreamFigures(const ScheduleParams& params) {
  const double indices = static_cast<double>(params.microbatches) * params.steps;
  ClosedForm form;
  form.peak_memory = std::min(indices, static_cast<double>(params.ranks));
  const auto work = UniformWork(params);
  if (work && params.comm == 0) form.makespan = (indices + params.ranks - 1) * *work;
  return form;
}

}  // namespace

Algorithm PipeDream() {
  Algorithm algorithm;
  algorithm.name = "pipedream";
  algorithm.summary = "1f1b without a flush: an update after every microbatch, stashed weights";
  algorithm.when =
      "For training that tolerates stale gradients, with memory for up to p versions of the "
      "weights: no bubble in steady state. Results differ from synchronous training.";
  algorithm.placement = PlacementForm::kLinear;
  algorithm.makespan = "(Tm+p-1)(F+B) for T steps; no bubble in steady state";
  algorithm.memory = "min(Tm, p); p-r weight versions on rank r";
  algorithm.source = "Narayanan et al., PipeDream, SOSP 2019, section 3.3";
  algorithm.supported = {.steps = true};
  algorithm.generate = GeneratePipeDream;
  algorithm.closed_form = PipedreamFigures;
  return algorithm;
}

Algorithm PipeDream2bw() {
  Algorithm algorithm;
  algorithm.name = "pipedream-2bw";
  algorithm.aliases = {"2bw"};
  algorithm.summary = "1f1b without a flush: an update per batch, two weight versions";
  algorithm.when =
      "As pipedream, with two versions of the weights per rank and gradients that are one batch "
      "old: the asynchronous schedule for large models.";
  algorithm.placement = PlacementForm::kLinear;
  algorithm.constraint = "m >= p";
  algorithm.makespan = "(Tm+p-1)(F+B) for T steps; no bubble in steady state";
  algorithm.memory = "min(Tm, p); 2 weight versions";
  algorithm.source = "Narayanan et al., PipeDream-2BW, ICML 2021, section 3.1";
  algorithm.supported = {.steps = true};
  algorithm.check = CheckPipeDream2bw;
  algorithm.generate = GeneratePipeDream2bw;
  algorithm.closed_form = PipedreamFigures;
  return algorithm;
}

}  // namespace penstock
