#include "train/run/results.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/files.h"
#include "report/report.h"
#include "runtime/update/update_points.h"
#include "schedule/text/text.h"
#include "simulate/memory/memory_over_time.h"
#include "simulate/summary.h"
#include "train/checkpoint/checkpoint.h"
#include "train/guard.h"
#include "train/log/step_trace.h"

namespace penstock {
namespace {

constexpr int kSkippedSteps = 2;  // the first steps warm up caches

SimulationResult MeasuredResult(const Schedule& schedule, const RunMeasure& measure,
                                const SimulationResult& predicted) {
  SimulationResult result;
  result.actions = predicted.actions;
  for (const RankMeasure& rank : measure.ranks) {
    result.ranks.push_back({rank.busy, rank.first_start, rank.last_end,
                            static_cast<double>(rank.peak_activation_bytes)});
  }
  FillTotals(schedule, result);
  return result;
}

// Returns the round of the trace whose makespan is nearest to the median.
std::int64_t TypicalRound(const Trace& trace, double makespan) {
  std::int64_t best = trace.last_round() - 1;
  double least_difference = std::numeric_limits<double>::max();
  for (std::int64_t round = trace.first_round(); round < trace.last_round(); ++round) {
    const double difference = std::abs(MeasureRound(trace, round).makespan - makespan);
    if (difference < least_difference) {
      least_difference = difference;
      best = round;
    }
  }
  return best;
}

double IdleShare(const RankResult& rank, double makespan) {
  return makespan > 0 ? 1 - rank.busy / makespan : 0;
}

// Plots the training loss of every step, the held-out losses, and the baseline.
Plot LossPlot(StepLog& log, const TrainSummary& summary) {
  Plot plot{"Loss", "step", "nats per " + summary.unit, {}};
  Series training{"training", {}};
  for (const StepMetric& metric : log.metrics()) {
    training.points.emplace_back(static_cast<double>(metric.step), metric.loss);
  }
  if (training.points.empty()) return plot;
  const double first = training.points.front().first;
  const double last = training.points.back().first;
  Series held_out{fmt::format("held out {:.3f}", summary.held_out_loss), {}};
  for (const HeldOutMetric& metric : log.held_out()) {
    if (static_cast<double>(metric.step) == last) continue;
    held_out.points.emplace_back(static_cast<double>(metric.step), metric.loss);
  }
  held_out.points.emplace_back(last, summary.held_out_loss);
  plot.series = {std::move(training),
                 std::move(held_out),
                 {fmt::format("held out, bigram model {:.3f}", summary.baseline_loss),
                  {{first, summary.baseline_loss}, {last, summary.baseline_loss}}}};
  if (summary.baseline_loss == 0) plot.series.pop_back();
  return plot;
}

ReportInput MakeReport(const TrainConfig& config, StepLog& log, const Comparison& comparison,
                       const TrainSummary& summary) {
  const Schedule& schedule = *comparison.schedule;
  ReportInput report;
  report.title = fmt::format("Training run {}", config.name);
  report.subtitle =
      fmt::format("{}: {} stages on {} ranks, {} microbatches, {} steps", schedule.algorithm,
                  schedule.stages(), schedule.ranks(), schedule.microbatches, summary.steps);
  report.time_unit = std::string(kSeconds);
  report.memory_unit = std::string(kBytes);
  report.schedule = &schedule;
  report.runs.push_back({"predicted", &comparison.predicted_timeline, comparison.predicted,
                         MemoryOverTime(schedule, comparison.predicted_timeline, comparison.costs),
                         nullptr, Explain(schedule, comparison.predicted_timeline)});
  report.runs.push_back({"measured", &comparison.measured_timeline, comparison.measured,
                         comparison.measured_memory, nullptr,
                         Explain(schedule, comparison.measured_timeline)});
  report.figures = {
      {"held-out loss", fmt::format("{:.3f}", summary.held_out_loss), "nats per " + summary.unit},
      {"bigram baseline", fmt::format("{:.3f}", summary.baseline_loss), "nats per byte"},
      {"tokens per second", fmt::format("{:.0f}", summary.tokens_per_second), "whole run"},
      {"step", FormatAmount(summary.step_time, "s"),
       fmt::format("predicted {}", FormatAmount(summary.predicted_step_time, "s"))},
  };
  if (summary.baseline_loss == 0) report.figures.erase(report.figures.begin() + 1);
  report.plots.push_back(LossPlot(log, summary));
  report.passages = {{"Generated text", summary.passage}, {"Configuration", ToYaml(config)}};
  return report;
}

// Returns the mean time of the later half of the steps of a schedule without a flush. A step ends
// with its last STEP action.
double SteadyStepTime(const Schedule& schedule, const Timeline& timeline) {
  std::vector<double> ends(schedule.steps);
  for (std::size_t rank = 0; rank < schedule.lanes.size(); ++rank) {
    const Lane& lane = schedule.lanes[rank];
    const auto is_step = [](const Action& action) { return action.first.op == Op::kStep; };
    const auto updates_per_step = std::count_if(lane.begin(), lane.end(), is_step) / schedule.steps;
    std::int64_t updates = 0;
    for (std::size_t i = 0; i < lane.size(); ++i) {
      if (!is_step(lane[i])) continue;
      double& end = ends[updates++ / updates_per_step];
      end = std::max(end, timeline.spans[rank][i].end);
    }
  }
  const std::size_t counted = (schedule.steps + 1) / 2;
  if (counted >= ends.size()) return ends.back();
  return (ends.back() - ends[ends.size() - 1 - counted]) / static_cast<double>(counted);
}

// Without a flush, STEP is an action between others, so its time is part of the makespan.
void AddStepCosts(const Schedule& schedule, const RunMeasure& measure, Costs& costs) {
  for (int rank = 0; rank < schedule.ranks(); ++rank) {
    const Lane& lane = schedule.lanes[rank];
    const auto steps = std::count_if(lane.begin(), lane.end(), [](const Action& action) {
      return action.first.op == Op::kStep;
    });
    for (const int stage : schedule.placement.stages_of(rank)) {
      costs.stages[stage].step = measure.ranks[rank].optimizer / static_cast<double>(steps);
    }
  }
}

// Returns how much longer a step takes that post-validation rolls back: the forwards before the
// verdict run twice, and so does the update.
Result<double> RollBackTime(const Schedule& schedule, const Timeline& timeline, double update) {
  PENSTOCK_TRY(const std::vector<std::size_t> ends, FindCheckPoints(schedule));
  double early = 0;
  for (int rank = 0; rank < schedule.ranks(); ++rank) {
    PENSTOCK_TRY(const Program program, MakeProgram(schedule, rank));
    for (std::size_t i = 0; i < ends[rank]; ++i) {
      if (program[i].position < 0) continue;
      early = std::max(early, timeline.spans[rank][program[i].position].end);
    }
  }
  return early + update;
}

// Returns the path of a file in the run's folder and appends it to the summary.
std::string AddFile(const char* name, const RunContext& run, TrainSummary& summary) {
  return summary.files.emplace_back(fmt::format("{}/{}", run.path(), name));
}

}  // namespace

Result<Comparison> Compare(const Trace& trace, bool lengths_differ, bool is_rolled_back) {
  const Schedule& schedule = trace.schedule();
  const RunMeasure measure = MeasureRun(trace, kSkippedSteps);
  Comparison comparison;
  comparison.schedule = &schedule;
  comparison.costs = MeasuredCosts(trace, kSkippedSteps, lengths_differ);
  if (schedule.steps > 1) AddStepCosts(schedule, measure, comparison.costs);
  PENSTOCK_TRY(comparison.predicted,
               Simulate(schedule, comparison.costs, {.timeline = &comparison.predicted_timeline}));
  comparison.measured = MeasuredResult(schedule, measure, comparison.predicted);
  const std::int64_t typical = TypicalRound(trace, measure.makespan);
  comparison.measured_timeline = MeasuredTimeline(trace, typical);
  comparison.measured_memory = MeasuredMemory(trace, comparison.measured_timeline, typical);
  comparison.drift = FindDrift(trace, comparison.costs, kSkippedSteps);
  comparison.step_time = measure.step_time;
  const std::size_t first_rank = schedule.placement.rank_of(0);
  comparison.predicted_step_time =
      comparison.predicted.makespan + measure.ranks[first_rank].optimizer;
  if (is_rolled_back) {
    PENSTOCK_TRY(const double extra, RollBackTime(schedule, comparison.predicted_timeline,
                                                  measure.ranks[first_rank].optimizer));
    comparison.predicted_step_time += extra;
  }
  if (schedule.steps > 1) {
    comparison.step_time = SteadyStepTime(schedule, comparison.measured_timeline);
    comparison.predicted_step_time = SteadyStepTime(schedule, comparison.predicted_timeline);
  }
  return comparison;
}

void Summarize(const Comparison& comparison, std::int64_t first_step, TrainSummary& summary) {
  const SimulationResult& predicted = comparison.predicted;
  const SimulationResult& measured = comparison.measured;
  summary.step_time = comparison.step_time;
  summary.predicted_step_time = comparison.predicted_step_time;
  summary.ranks = static_cast<int>(measured.ranks.size());
  for (std::size_t rank = 0; rank < measured.ranks.size(); ++rank) {
    summary.per_rank.push_back(
        {measured.ranks[rank].busy, IdleShare(measured.ranks[rank], measured.makespan),
         static_cast<std::int64_t>(measured.ranks[rank].peak_memory), predicted.ranks[rank].busy,
         IdleShare(predicted.ranks[rank], predicted.makespan),
         static_cast<std::int64_t>(predicted.ranks[rank].peak_memory)});
  }
  summary.drift = DriftText(comparison.drift, first_step);
  summary.table = FormatTable(PredictedMeasuredTable(predicted, measured, "s", "B"));
}

Status WriteStartFiles(const RunContext& run, TrainSummary& summary) {
  PENSTOCK_TRY_STATUS(
      FailedRun(WriteFileAtomically(AddFile("config.yaml", run, summary), ToYaml(run.config))));
  return FailedRun(SaveSchedule(run.schedule, AddFile("schedule.csv", run, summary)));
}

Status WriteWeights(const RunContext& run, const LanguageModel& model, double seconds,
                    TrainSummary& summary) {
  return FailedRun(SaveCheckpoint(run.processes, model, {summary.steps, run.config, seconds},
                                  AddFile("model.safetensors", run, summary)));
}

Status WriteReports(const RunContext& run, StepLog& log, const Comparison& comparison,
                    TrainSummary& summary) {
  ReportInput report = MakeReport(run.config, log, comparison, summary);
  PENSTOCK_TRY_STATUS(FailedRun(WriteChromeTrace(report, AddFile("trace.json", run, summary))));
  PENSTOCK_TRY_STATUS(FailedRun(WriteHtmlReport(report, AddFile("report.html", run, summary))));
  PENSTOCK_TRY_STATUS(
      FailedRun(WritePlot(report.plots.front(), AddFile("loss.svg", run, summary))));
  report.by_rank = true;
  return FailedRun(WriteSvg(report, AddFile("timeline.svg", run, summary)));
}

}  // namespace penstock
