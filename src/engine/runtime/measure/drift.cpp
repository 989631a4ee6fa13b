#include "runtime/measure/drift.h"

#include "base/units.h"
#include "runtime/measure/measure.h"
#include "schedule/text/text.h"

namespace penstock {
namespace {

class DriftFinder {
 public:
  DriftFinder(const Trace& trace, const Costs& planned) : trace_(trace), planned_(planned) {
    drift_.ranks.resize(trace.schedule().ranks());
  }

  void AddRound(std::int64_t round) {
    for (int rank = 0; rank < trace_.schedule().ranks(); ++rank) AddRank(rank, round);
  }

  Drift Finish() {
    double worst = 0;
    for (std::size_t rank = 0; rank < drift_.ranks.size(); ++rank) {
      const double delay = drift_.ranks[rank].took - drift_.ranks[rank].planned;
      if (delay <= worst) continue;
      worst = delay;
      drift_.straggler = static_cast<int>(rank);
    }
    return std::move(drift_);
  }

 private:
  void AddRank(int rank, std::int64_t round) {
    const Program& program = trace_.program(rank);
    const std::span<const Stamp> stamps = trace_.RankStep(rank, round);
    const Lane& lane = trace_.schedule().lanes[rank];
    for (std::size_t i = 0; i < program.size(); ++i) {
      const int position = program[i].position;
      // Both entries of a pair have its start and end.
      if (position < 0 || program[i].ends_pair || !OccupiesRank(program[i].part.op)) continue;
      Add({rank, StepOf(program[i].part, round), lane[position], 0,
           static_cast<double>(stamps[i].end_ns - stamps[i].start_ns) * kSecondsPerNs});
    }
  }

  std::int64_t StepOf(const Part& part, std::int64_t round) const {
    const Schedule& schedule = trace_.schedule();
    const int microbatches_per_step = std::max(1, schedule.indices() / schedule.steps);
    const int within = HasMicrobatch(part.op) ? part.microbatch / microbatches_per_step : 0;
    return round * schedule.steps + within;
  }

  void Add(SlowAction action) {
    action.planned = planned_.Duration(action.action);
    RankDrift& rank = drift_.ranks[action.rank];
    rank.planned += action.planned;
    rank.took += action.took;
    const double delay = action.took - action.planned;
    if (delay <= worst_) return;
    worst_ = delay;
    drift_.slowest = action;
  }

  const Trace& trace_;
  const Costs& planned_;
  Drift drift_;
  double worst_ = 0;
};

}  // namespace

Drift FindDrift(const Trace& trace, const Costs& planned, int skip) {
  DriftFinder finder(trace, planned);
  for (std::int64_t r = FirstMeasuredRound(trace, skip); r < trace.last_round(); ++r) {
    finder.AddRound(r);
  }
  return finder.Finish();
}

std::string DriftText(const Drift& drift, std::int64_t first_step) {
  if (!drift.slowest) return "no action took longer than planned";
  const SlowAction& slowest = *drift.slowest;
  std::string text =
      fmt::format("furthest from the plan: {} on rank {} took {} in step {}, {} planned",
                  ToText(slowest.action), slowest.rank, FormatSeconds(slowest.took),
                  first_step + slowest.step, FormatSeconds(slowest.planned));
  if (drift.straggler < 0) return text;
  const RankDrift& rank = drift.ranks[drift.straggler];
  text += fmt::format("; straggling rank: {}, busy {} for {} planned", drift.straggler,
                      FormatSeconds(rank.took), FormatSeconds(rank.planned));
  return text;
}

}  // namespace penstock
