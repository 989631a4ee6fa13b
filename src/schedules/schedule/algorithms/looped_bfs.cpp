// Looped BFS: all forwards of a chunk before the next chunk, and the same for the backwards.
//
//   rank 0 of 2, v = 2, m = 3   0F0 0F1 0F2 2F0 2F1 2F2 2B2 2B1 2B0 0B2 0B1 0B0
//
// Makespan as interleaved; all m microbatches in memory on every rank. With sharded weights each
// chunk is unsharded once for its forwards and once for its backwards, for any number of
// microbatches.
// Lamy-Poirier, Breadth-First Pipeline Parallelism, MLSys 2023, section 4.
#include "base/index.h"
#include "schedule/algorithms/algorithms.h"

namespace penstock {
namespace {

Lane MakeLane(const ScheduleParams& params, int rank) {
  Lane lane;
  lane.reserve(std::size_t{2} * Index(params.chunks) * Index(params.microbatches));
  for (int chunk = 0; chunk < params.chunks; ++chunk) {
    const int stage = chunk * params.ranks + rank;
    for (int n = 0; n < params.microbatches; ++n) lane.push_back(Forward(stage, n));
  }
  for (int chunk = params.chunks - 1; chunk >= 0; --chunk) {
    const int stage = chunk * params.ranks + rank;
    for (int n = params.microbatches - 1; n >= 0; --n) lane.push_back(Backward(stage, n));
  }
  return lane;
}

Schedule GenerateLoopedBfs(const ScheduleParams& params) {
  Schedule schedule = EmptySchedule(Placement::Looped(params.ranks, params.chunks), params);
  for (int rank = 0; rank < params.ranks; ++rank) {
    schedule.lanes[rank] = MakeLane(params, rank);
  }
  return schedule;
}

ClosedForm LoopedBfsFigures(const ScheduleParams& params) {
  const double p = params.ranks, v = params.chunks, m = params.microbatches;
  ClosedForm form;
  form.peak_memory = m;
  const auto work = UniformWork(params);
  if (work && params.comm == 0) {
    form.makespan = (m >= p ? m * v + p - 1 : p * v + m - 1) * *work / v;
  }
  return form;
}

}  // namespace

Algorithm LoopedBfs() {
  Algorithm algorithm;
  algorithm.name = "looped-bfs";
  algorithm.aliases = {"breadth-first"};
  algorithm.summary = "breadth-first: all forwards of a chunk before the next chunk";
  algorithm.when =
      "For sharded weights (FSDP): each chunk is unsharded only once per direction and batch. It "
      "keeps the activations of the whole batch alive, so it suits small m.";
  algorithm.placement = PlacementForm::kLooped;
  algorithm.makespan = "(mv+p-1)(F+B)/v; (pv+m-1)(F+B)/v for m < p";
  algorithm.memory = "m";
  algorithm.source = "Lamy-Poirier, Breadth-First Pipeline Parallelism, MLSys 2023, section 4";
  algorithm.supported = {.min_chunks = 1, .max_chunks = kMaxStages, .default_chunks = 2};
  algorithm.generate = GenerateLoopedBfs;
  algorithm.closed_form = LoopedBfsFigures;
  return algorithm;
}

}  // namespace penstock
