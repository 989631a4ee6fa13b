#include "train/run/step_log.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "train/log/step_trace.h"

namespace penstock {
namespace {

std::int64_t TokensAStep(const TrainConfig& config) {
  return static_cast<std::int64_t>(config.batch) * config.pipeline.microbatches *
         config.model.sequence;
}

}  // namespace

StepLog::StepLog(const TrainConfig& config, const RunFolder& folder, const RunStart& start,
                 const LearningRate& rate, std::FILE* out)
    : config_(config),
      run_(folder),
      has_verdicts_(UpdateRuleOf(config.optimizer).needs_norm()),
      rate_(rate),
      folder_(RunPath(config)),
      progress_(out, TokensAStep(config), {start.step(), start.seconds()}),
      file_(folder_ + "/metrics.jsonl", start.metrics),
      metrics_(start.metrics) {}

void StepLog::Begin(const Trace& trace, std::int64_t first, std::int64_t total) {
  trace_ = &trace;
  first_ = first;
  total_ = total;
}

void StepLog::AfterStep(int rank, std::int64_t step, std::optional<double> loss,
                        std::span<const StageNorm> norms) {
  const std::lock_guard<std::mutex> lock(mutex_);
  OpenStep& open = open_[step];
  if (loss) open.loss = *loss;
  for (const StageNorm& norm : norms) open.squared_norms[norm.stage] = norm.squared;
  if (trace_->schedule().steps == 1) {
    AddRank(*trace_, rank, step - first_, open);
  } else {
    AddStreamed(*trace_, rank, step - first_, open);
  }
  ++open.ranks;
  open.seconds = progress_.elapsed();
  ReportIfComplete(step);
}

void StepLog::AfterVerdict(std::int64_t step, const Verdict& verdict) {
  const std::lock_guard<std::mutex> lock(mutex_);
  open_[step].verdict = verdict;
  ReportIfComplete(step);
}

// Where steps are made early the verdict on one comes after it.
void StepLog::ReportIfComplete(std::int64_t step) {
  const OpenStep& open = open_.at(step);
  if (open.ranks < trace_->schedule().ranks() || (has_verdicts_ && !open.verdict)) return;
  const Status reported = Report(step, open);
  open_.erase(step);
  if (!reported) throw std::runtime_error(reported.error().message);
}

double StepLog::OpenStep::grad_norm() const {
  if (verdict) return verdict->norm;
  double sum = 0;
  for (const auto& [stage, squared] : squared_norms) sum += squared;
  return std::sqrt(sum);
}

// By the same rules as MeasureRound, from this rank's thread.
void StepLog::AddRank(const Trace& trace, int rank, std::int64_t round, OpenStep& step) {
  const Program& program = trace.program(rank);
  const std::span<const Stamp> stamps = trace.RankStep(rank, round);
  std::int64_t busy = 0;
  for (std::size_t i = 0; i < program.size(); ++i) {
    const ProgramEntry& entry = program[i];
    if (entry.position < 0 || entry.ends_pair || !OccupiesRank(entry.part.op)) continue;
    busy += stamps[i].end_ns - stamps[i].start_ns;
    step.end_ns = std::max(step.end_ns, stamps[i].end_ns);
    if (IsCompute(entry.part.op)) step.start_ns = std::min(step.start_ns, stamps[i].start_ns);
  }
  step.busiest_ns = std::max(step.busiest_ns, busy);
}

// Without a flush: what the rank did from its last update of the step before on to this one's.
void StepLog::AddStreamed(const Trace& trace, int rank, std::int64_t behind_first, OpenStep& step) {
  const Schedule& schedule = trace.schedule();
  const auto updates = static_cast<std::int64_t>(schedule.placement.stages_of(rank).size()) *
                       (schedule.weights == WeightPolicy::kStashed ? schedule.microbatches : 1);
  const std::int64_t of_round = behind_first % schedule.steps;
  const Program& program = trace.program(rank);
  const std::span<const Stamp> stamps = trace.RankStep(rank, behind_first / schedule.steps);
  std::int64_t made = 0, busy = 0;
  std::int64_t begin = stamps.front().start_ns, end = begin;
  for (std::size_t i = 0; i < program.size() && made < (of_round + 1) * updates; ++i) {
    const Op op = program[i].part.op;
    if (made < of_round * updates) {
      begin = stamps[i].end_ns;
    } else if (OccupiesRank(op) && !program[i].ends_pair) {
      busy += stamps[i].end_ns - stamps[i].start_ns;
    }
    end = stamps[i].end_ns;
    if (op == Op::kStep) ++made;
  }
  step.busiest_ns = std::max(step.busiest_ns, busy);
  step.start_ns = 0;
  step.end_ns = std::max(step.end_ns, end - begin);
}

Status StepLog::Report(std::int64_t step, const OpenStep& ended) {
  StepMetric metric;
  metric.step = step;
  metric.loss = ended.loss;
  metric.lr = rate_.At(step);
  metric.grad_norm = ended.grad_norm();
  metric.clipped = ended.verdict && ended.verdict->scale != 1;
  metric.skipped = ended.verdict && !ended.verdict->apply;
  metric.bubble = ended.bubble();
  metric.seconds = ended.seconds;
  metrics_.push_back(metric);
  PENSTOCK_TRY_STATUS(run_.Check());
  PENSTOCK_TRY_STATUS(file_.Append(metric));
  progress_.Report(step + 1, total_, {ended.loss, ended.bubble()});
  const std::vector<std::int64_t>& wanted = config_.trace_steps;
  if (std::find(wanted.begin(), wanted.end(), step) == wanted.end()) return {};
  const std::string path = fmt::format("{}/trace-step-{}.json", folder_, step);
  PENSTOCK_TRY_STATUS(WriteStepTrace(
      *trace_, step - first_, fmt::format("Training run {}, step {}", config_.name, step), path));
  traces_.push_back(path);
  return {};
}

}  // namespace penstock
