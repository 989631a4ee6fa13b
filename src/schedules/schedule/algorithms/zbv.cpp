// ZB-V: two chunks per rank in a vee, so that the last stage is on rank 0 and every rank needs the
// same memory.
//
//   rank 0 of 2, m = 3   0F0 0F1 0F2 3F0 3I0 3W0 3F1 3I1 3W1 0I0 0W0 3F2 3I2 3W2 0I1 0W1 0I2 0W2
//   rank 1               1F0 2F0 1F1 2F1 2I0 2W0 1I0 1W0 ...
//
// For F = I = W = 1 and m >= 2p - 1: makespan 3m + (p-1)/2, span 3m, so no bubble between a rank's
// first and last action; peak memory p. `zbv-formatted` is exactly this pattern. `zbv` takes any m
// and any costs: if the pattern is not known to be the best (few microbatches, unequal times,
// latency) it is squeezed, and compared with list scheduling, within the same memory.
// Qi et al., Pipeline Parallelism with Controllable Memory, NeurIPS 2024, section 4 (V-ZB).
#include "schedule/algorithms/zbv.h"

#include "base/index.h"
#include "schedule/algorithms/algorithms.h"
#include "schedule/search/search.h"

namespace penstock {
namespace {

// Writes one rank's lane. Skips an action that has run out, or whose predecessor on this rank has
// not run, so that the same steps serve any number of microbatches.
class ZbvLane {
 public:
  ZbvLane(int ranks, int rank, int microbatches)
      : ranks_(ranks), rank_(rank), count_(microbatches), stage_{rank, 2 * ranks - 1 - rank} {
    ReserveLong(lane_, 6 * Index(microbatches));
  }

  Lane Write() && {
    const int later = ranks_ - rank_;
    for (int i = 0; i < 2 * later - 1; ++i) F(0);
    for (int i = 0; i < rank_; ++i) F(1), F(0);
    for (int i = 0; i < later; ++i) F(1), I(1), W(1);
    while (f_[1] < count_) F(0), I(0), W(0), F(1), I(1), W(1);
    for (int i = 0; i < rank_; ++i) I(0), I(1);
    for (int i = 0; i < later; ++i) I(0), W(0);
    while (i_[0] < count_) I(1), I(0);
    while (w_[1] < count_) W(1);
    while (w_[0] < count_) W(0);
    return std::move(lane_);
  }

 private:
  void F(int chunk) {
    if (f_[chunk] == count_ || (chunk == 1 && f_[1] == f_[0])) return;
    lane_.push_back(Forward(stage_[chunk], f_[chunk]++));
  }
  void I(int chunk) {
    if (i_[chunk] == (chunk == 1 ? f_[1] : std::min(f_[0], i_[1]))) return;
    lane_.push_back(BackwardInput(stage_[chunk], i_[chunk]++));
  }
  void W(int chunk) {
    if (w_[chunk] == i_[chunk]) return;
    lane_.push_back(BackwardWeight(stage_[chunk], w_[chunk]++));
  }

  const int ranks_, rank_, count_;
  const int stage_[2];
  int f_[2] = {}, i_[2] = {}, w_[2] = {};
  Lane lane_;
};

bool PatternIsBest(const ScheduleParams& params) {
  return EqualTimes(params) && params.microbatches >= 2 * std::int64_t{params.ranks} - 1;
}

Schedule GenerateFormatted(const ScheduleParams& params) {
  Schedule schedule = EmptySchedule(Placement::Vee(params.ranks), params);
  schedule.lanes = ZbvLanes(params.ranks, params.microbatches);
  return schedule;
}

Schedule GenerateZbv(const ScheduleParams& params) {
  Schedule schedule = GenerateFormatted(params);
  if (PatternIsBest(params)) return schedule;
  const Costs costs = CostsOf(params, schedule.placement);
  const Problem problem = {.placement = schedule.placement,
                           .costs = costs,
                           .indices = params.microbatches,
                           .objective = params.objective};
  schedule.lanes = SearchNear(ZbvSeeds, problem, params.ranks);
  return schedule;
}

Status CheckFormatted(const ScheduleParams& params) {
  if (params.microbatches < 2 * std::int64_t{params.ranks} - 1) {
    return InvalidParameter("microbatches", "{}: must be at least 2p-1, {}; 'zbv' takes any number",
                            params.microbatches, 2 * std::int64_t{params.ranks} - 1);
  }
  return {};
}

ClosedForm ZbvFigures(const ScheduleParams& params) {
  ClosedForm form;
  if (params.microbatches < 2 * std::int64_t{params.ranks} - 1) return form;
  form.peak_memory = params.ranks;
  if (EqualTimes(params)) {
    form.makespan = (3.0 * params.microbatches + (params.ranks - 1) / 2.0) * params.forward;
  }
  return form;
}

}  // namespace

std::vector<Lane> ZbvLanes(int ranks, int microbatches) {
  std::vector<Lane> lanes;
  for (int rank = 0; rank < ranks; ++rank) {
    lanes.push_back(ZbvLane(ranks, rank, microbatches).Write());
  }
  return lanes;
}

Seeds ZbvSeeds(const Problem& problem) {
  return Seeds{ZbvLanes(problem.placement.ranks(), problem.indices)};
}

// Each stage starts 3 slots after the previous one, in both directions. So on every rank chunk 1 is
// 3 slots from chunk 0 (modulo 6), and each I is one slot after an F of its chunk.
PeriodPattern ZbvPattern(int ranks) {
  constexpr int kBetweenStages = 3;
  const int stages = 2 * ranks;
  PeriodPattern pattern(stages);
  pattern.period = 6;
  for (int stage = 0; stage < stages; ++stage) {
    const std::size_t s = stage;
    pattern.forward[s] = kBetweenStages * stage;
    pattern.backward[s] = kBetweenStages * (2 * stages - 2 - stage) + 1;
    pattern.weight[s] = pattern.backward[s] + 1;
  }
  return pattern;
}

Algorithm Zbv() {
  Algorithm algorithm;
  algorithm.name = "zbv";
  algorithm.aliases = {"zbv-zero-bubble", "v-zb"};
  algorithm.summary = "a vee of two chunks: no bubble within a rank's span, 1f1b's memory";
  algorithm.when =
      "The first choice if the backward can be split: no bubble within a rank's span, with the "
      "memory of 1f1b. As on every vee, the loss is computed on the rank that reads the input.";
  algorithm.placement = PlacementForm::kVee;
  algorithm.makespan = "3m+(p-1)/2, span 3m, for m >= 2p-1";
  algorithm.memory = "min(m, p)";
  algorithm.source = "Qi et al., Pipeline Parallelism with Controllable Memory, NeurIPS 2024";
  algorithm.supported = {.min_chunks = 2, .max_chunks = 2, .default_chunks = 2, .objective = true};
  algorithm.generate = GenerateZbv;
  algorithm.closed_form = ZbvFigures;
  return algorithm;
}

Algorithm ZbvFormatted() {
  Algorithm algorithm = Zbv();
  algorithm.name = "zbv-formatted";
  algorithm.aliases = {};
  algorithm.summary = "the pattern of zbv by its rule, whatever the costs";
  algorithm.when =
      "For an order that must not depend on measured costs, so that every run has the same one. "
      "Otherwise use zbv, which is at least as fast.";
  algorithm.constraint = "m >= 2p-1";
  algorithm.memory = "p";
  algorithm.supported.objective = false;
  algorithm.check = CheckFormatted;
  algorithm.generate = GenerateFormatted;
  return algorithm;
}

}  // namespace penstock
