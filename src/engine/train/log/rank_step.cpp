#include "train/log/rank_step.h"

#include <algorithm>
#include <span>
#include <vector>

namespace penstock {
namespace {

// The activations of a rank after each of its actions.
class HeldActivations {
 public:
  explicit HeldActivations(int stages) : of_stage_(stages) {}

  // Returns the bytes of all stages after an action.
  std::int64_t After(const ProgramEntry& entry, const Stamp& stamp) {
    std::int64_t& own = of_stage_[entry.part.stage];
    total_ += stamp.activation_bytes - own;
    own = stamp.activation_bytes;
    return total_;
  }

 private:
  std::vector<std::int64_t> of_stage_;
  std::int64_t total_ = 0;
};

void AddFlushed(const Trace& trace, int rank, std::int64_t round, const ClockOffset& clock,
                StepPart& part) {
  const Program& program = trace.program(rank);
  const std::span<const Stamp> stamps = trace.RankStep(rank, round);
  HeldActivations held(trace.schedule().stages());
  RankFigures& figures = part.ranks[rank];
  for (std::size_t i = 0; i < program.size(); ++i) {
    const ProgramEntry& entry = program[i];
    figures.peak_activation_bytes =
        std::max(figures.peak_activation_bytes, held.After(entry, stamps[i]));
    if (entry.position < 0 || entry.ends_pair || !OccupiesRank(entry.part.op)) continue;
    figures.busy_ns += stamps[i].end_ns - stamps[i].start_ns;
    part.end_ns = std::max(part.end_ns, stamps[i].end_ns + clock.ns);
    if (IsCompute(entry.part.op)) {
      part.start_ns = std::min(part.start_ns, stamps[i].start_ns + clock.ns);
    }
  }
}

void AddStreamed(const Trace& trace, int rank, std::int64_t step, StepPart& part) {
  const Schedule& schedule = trace.schedule();
  const auto updates = static_cast<std::int64_t>(schedule.placement.stages_of(rank).size()) *
                       (schedule.weights == WeightPolicy::kStashed ? schedule.microbatches : 1);
  const std::int64_t of_round = step % schedule.steps;
  const Program& program = trace.program(rank);
  const std::span<const Stamp> stamps = trace.RankStep(rank, step / schedule.steps);
  HeldActivations held(schedule.stages());
  RankFigures& figures = part.ranks[rank];
  std::int64_t updated = 0;
  std::int64_t begin = stamps.front().start_ns, end = begin;
  for (std::size_t i = 0; i < program.size() && updated < (of_round + 1) * updates; ++i) {
    const Op op = program[i].part.op;
    const std::int64_t bytes = held.After(program[i], stamps[i]);
    if (updated < of_round * updates) {
      begin = stamps[i].end_ns;
    } else {
      figures.peak_activation_bytes = std::max(figures.peak_activation_bytes, bytes);
      if (OccupiesRank(op) && !program[i].ends_pair) {
        figures.busy_ns += stamps[i].end_ns - stamps[i].start_ns;
      }
    }
    end = stamps[i].end_ns;
    if (op == Op::kStep) ++updated;
  }
  part.start_ns = 0;
  part.end_ns = std::max(part.end_ns, end - begin);
}

}  // namespace

void AddRankStep(const Trace& trace, int rank, std::int64_t step, const ClockOffset& clock,
                 StepPart& part) {
  if (trace.schedule().steps == 1) {
    AddFlushed(trace, rank, step, clock, part);
  } else {
    AddStreamed(trace, rank, step, part);
  }
}

}  // namespace penstock
