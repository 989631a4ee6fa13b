// Derives the timeline and the figures of each rank from a trace.
#include "runtime/measure/measure.h"

#include <algorithm>
#include <limits>

#include "base/median.h"
#include "runtime/measure/trace.h"

namespace penstock {
namespace {

double MedianOf(const std::vector<RunMeasure>& rounds, double RunMeasure::*field) {
  std::vector<double> values;
  for (const RunMeasure& round : rounds) values.push_back(round.*field);
  return Median(values);
}

double MedianOf(const std::vector<RunMeasure>& rounds, std::size_t rank,
                double RankMeasure::*field) {
  std::vector<double> values;
  for (const RunMeasure& round : rounds) values.push_back(round.ranks[rank].*field);
  return Median(values);
}

RankMeasure MeasureRank(const Trace& trace, int rank, std::int64_t round, std::int64_t origin) {
  const Program& program = trace.program(rank);
  const std::span<const Stamp> stamps = trace.RankStep(rank, round);
  const auto seconds = [origin](std::int64_t ns) {
    return static_cast<double>(ns - origin) * kSecondsPerNs;
  };
  std::vector<std::int64_t> activations(trace.schedule().stages());
  std::int64_t total = 0;
  RankMeasure measure;
  measure.first_start = std::numeric_limits<double>::max();
  for (std::size_t i = 0; i < program.size(); ++i) {
    const double start = seconds(stamps[i].start_ns);
    const double end = seconds(stamps[i].end_ns);
    std::int64_t& of_stage = activations[program[i].part.stage];
    total += stamps[i].activation_bytes - of_stage;
    of_stage = stamps[i].activation_bytes;
    measure.peak_activation_bytes = std::max(measure.peak_activation_bytes, total);
    if (program[i].ends_pair) continue;
    if (i > 0) measure.wait += start - seconds(stamps[i - 1].end_ns);
    if (program[i].position < 0) measure.optimizer += end - start;
    if (program[i].position < 0) continue;
    measure.last_end = std::max(measure.last_end, end);
    if (!OccupiesRank(program[i].part.op)) continue;
    measure.busy += end - start;
    if (!IsCompute(program[i].part.op)) continue;
    measure.first_start = std::min(measure.first_start, start);
  }
  measure.first_start = std::min(measure.first_start, measure.last_end);
  return measure;
}

}  // namespace

std::int64_t RoundOrigin(const Trace& trace, std::int64_t round) {
  std::int64_t origin = std::numeric_limits<std::int64_t>::max();
  for (int rank = 0; rank < trace.schedule().ranks(); ++rank) {
    const Program& program = trace.program(rank);
    const std::span<const Stamp> stamps = trace.RankStep(rank, round);
    for (std::size_t i = 0; i < program.size(); ++i) {
      // The first compute of a rank may wait for the weights of its stage.
      const Op op = program[i].part.op;
      if (IsCompute(op) || op == Op::kUnshard) origin = std::min(origin, stamps[i].start_ns);
    }
  }
  return origin;
}

Timeline MeasuredTimeline(const Trace& trace, std::int64_t round) {
  const std::int64_t origin = RoundOrigin(trace, round);
  // A rank may run EMBED of this round while others end the previous one.
  const auto seconds = [origin](std::int64_t ns) {
    return static_cast<double>(std::max<std::int64_t>(0, ns - origin)) * kSecondsPerNs;
  };
  Timeline timeline;
  for (int rank = 0; rank < trace.schedule().ranks(); ++rank) {
    const std::span<const Stamp> stamps = trace.RankStep(rank, round);
    const Lane& lane = trace.schedule().lanes[rank];
    std::vector<Span> spans(lane.size());
    double previous_end = 0;
    std::size_t entry = 0;
    for (std::size_t i = 0; i < lane.size(); ++i) {
      spans[i] = {previous_end, previous_end};
      if (IsCommunication(lane[i].first.op) || IsWait(lane[i].first.op)) continue;
      spans[i].start = seconds(stamps[entry].start_ns);
      if (lane[i].is_pair()) ++entry;
      spans[i].end = previous_end = seconds(stamps[entry].end_ns);
      ++entry;
    }
    timeline.spans.push_back(std::move(spans));
  }
  return timeline;
}

RunMeasure MeasureRound(const Trace& trace, std::int64_t round) {
  const std::int64_t origin = RoundOrigin(trace, round);
  RunMeasure measure;
  double busiest = 0;
  double optimizer = 0;
  for (int rank = 0; rank < trace.schedule().ranks(); ++rank) {
    measure.ranks.push_back(MeasureRank(trace, rank, round, origin));
    const RankMeasure& own = measure.ranks.back();
    measure.makespan = std::max(measure.makespan, own.last_end);
    busiest = std::max(busiest, own.busy);
    optimizer = std::max(optimizer, own.optimizer);
  }
  for (RankMeasure& own : measure.ranks) {
    own.bubble = measure.makespan > 0 ? 1 - own.busy / measure.makespan : 0;
  }
  measure.bubble = measure.makespan > 0 ? 1 - busiest / measure.makespan : 0;
  measure.step_time = measure.makespan + optimizer;
  if (round + 1 < trace.last_round()) {
    measure.step_time = static_cast<double>(RoundOrigin(trace, round + 1) - origin) * kSecondsPerNs;
  }
  return measure;
}

RunMeasure MeasureRun(const Trace& trace, int skip) {
  std::vector<RunMeasure> rounds;
  for (std::int64_t r = FirstMeasuredRound(trace, skip); r < trace.last_round(); ++r) {
    rounds.push_back(MeasureRound(trace, r));
  }
  RunMeasure run;
  if (rounds.empty()) return run;
  run.makespan = MedianOf(rounds, &RunMeasure::makespan);
  run.bubble = MedianOf(rounds, &RunMeasure::bubble);
  run.ranks.resize(rounds.front().ranks.size());
  for (std::size_t rank = 0; rank < run.ranks.size(); ++rank) {
    for (double RankMeasure::*field :
         {&RankMeasure::busy, &RankMeasure::wait, &RankMeasure::optimizer, &RankMeasure::bubble,
          &RankMeasure::first_start, &RankMeasure::last_end}) {
      run.ranks[rank].*field = MedianOf(rounds, rank, field);
    }
    for (const RunMeasure& round : rounds) {
      run.ranks[rank].peak_activation_bytes =
          std::max(run.ranks[rank].peak_activation_bytes, round.ranks[rank].peak_activation_bytes);
    }
  }
  // No step starts after the last one, so its step time is only an estimate.
  if (rounds.size() > 1) rounds.pop_back();
  run.step_time = MedianOf(rounds, &RunMeasure::step_time);
  return run;
}

}  // namespace penstock
