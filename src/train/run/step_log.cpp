#include "train/run/step_log.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "runtime/measure/gather_trace.h"
#include "train/log/step_trace.h"

namespace penstock {
namespace {

std::int64_t TokensPerStep(const TrainConfig& config) {
  return static_cast<std::int64_t>(config.batch) * config.pipeline.microbatches *
         config.model.sequence;
}

}  // namespace

StepLog::StepLog(const Place& place, const RunStart& start, std::FILE* out)
    : config_(place.config),
      place_(place),
      has_verdicts_(UpdateRuleOf(config_.optimizer).needs_norm()),
      folder_(RunPath(config_)),
      progress_(out, TokensPerStep(config_), {start.step(), start.seconds()}),
      file_(folder_ + "/metrics.jsonl", start.metrics),
      metrics_(start.metrics) {}

void StepLog::Begin(Trace& trace, std::int64_t first, std::int64_t total) {
  trace_ = &trace;
  first_ = first;
  total_ = total;
  {
    const MutexLock lock(mutex_);
    reported_ = 0;
  }
  if (place_.hosts.hosts() == 1) return;
  channel_ = std::make_unique<Channel>(*place_.hosts.group());
  channel_->Open(
      [this](int, const FrameTag& tag, const Message& message) { OnFrame(tag.number, message); },
      [this](const Error&) {
        const MutexLock lock(mutex_);  // so that no wait misses it
        changed_.NotifyAll();
      });
}

Status StepLog::End(std::int64_t steps) {
  if (!channel_) return {};
  const HostGroup& group = *place_.hosts.group();
  MutexLock lock(mutex_);
  if (!place_.hosts.leads()) return failure_;
  while (reported_ != steps && failure_ && !group.aborted()) changed_.Wait(lock);
  if (!failure_ || reported_ == steps) return failure_;
  return tl::unexpected(group.reason());
}

void StepLog::Finish() {
  const MutexLock lock(mutex_);
  progress_.Finish();
}

Status StepLog::OpenFile() {
  const MutexLock lock(mutex_);
  return file_.Open();
}

double StepLog::elapsed() {
  const MutexLock lock(mutex_);
  return progress_.elapsed();
}

std::vector<StepMetric> StepLog::metrics() {
  const MutexLock lock(mutex_);
  return metrics_;
}

std::vector<std::string> StepLog::traces() {
  const MutexLock lock(mutex_);
  return traces_;
}

void StepLog::AfterStep(int rank, std::int64_t step, std::optional<double> loss,
                        std::span<const StageNorm> norms) {
  const MutexLock lock(mutex_);
  if (!failure_) throw std::runtime_error(failure_.error().message);
  StepPart part;
  part.ranks = 1;
  part.loss = loss;
  for (const StageNorm& norm : norms) part.squared_norms[norm.stage] = norm.squared;
  if (trace_->schedule().steps == 1) {
    AddRank(*trace_, rank, step - first_, part);
  } else {
    AddStreamed(*trace_, rank, step - first_, part);
  }
  Add(step, part, rank);
}

void StepLog::AfterVerdict(std::int64_t step, const Verdict& verdict) {
  const MutexLock lock(mutex_);
  StepPart part;
  part.verdict = verdict;
  Add(step, part, -1);
}

void StepLog::Add(std::int64_t step, const StepPart& part, int rank) {
  if (!place_.hosts.leads()) {
    ByteWriter writer;
    part.Put(writer);
    if (rank >= 0 && WantsTrace(step)) PutStamps(*trace_, rank, step - first_, writer);
    channel_->Send(0, {0, 0, step}, CopyToMessage(writer.bytes()));
    return;
  }
  StepPart& open = open_[step];
  open.Add(part);
  if (part.ranks > 0) open.seconds = progress_.elapsed();
  ReportIfComplete(step);
}

// With post-validation, the verdict on a step comes after the step.
void StepLog::ReportIfComplete(std::int64_t step) {
  const StepPart& open = open_.at(step);
  if (open.ranks < place_.ranks.ranks() || (has_verdicts_ && !open.verdict)) return;
  const Status reported = Report(step, open);
  open_.erase(step);
  ++reported_;
  changed_.NotifyAll();
  if (!reported) throw std::runtime_error(reported.error().message);
}

void StepLog::OnFrame(std::int64_t step, const Message& message) {
  ByteReader reader(TextOf(message));
  const StepPart part = StepPart::Take(reader);
  const MutexLock lock(mutex_);
  while (!reader.at_end()) TakeStamps(reader, *trace_);
  try {
    Add(step, part, -1);
  } catch (const std::exception& error) {
    if (failure_) failure_ = MakeError(ErrorCode::kUnavailable, "{}", error.what());
    changed_.NotifyAll();
  }
}

bool StepLog::WantsTrace(std::int64_t step) const {
  return std::ranges::find(config_.trace_steps, step) != config_.trace_steps.end();
}

// Follows the rules of MeasureRound, but for one rank and on its thread.
void StepLog::AddRank(const Trace& trace, int rank, std::int64_t round, StepPart& part) {
  const Program& program = trace.program(rank);
  const std::span<const Stamp> stamps = trace.RankStep(rank, round);
  std::int64_t busy = 0;
  for (std::size_t i = 0; i < program.size(); ++i) {
    const ProgramEntry& entry = program[i];
    if (entry.position < 0 || entry.ends_pair || !OccupiesRank(entry.part.op)) continue;
    busy += stamps[i].end_ns - stamps[i].start_ns;
    part.end_ns = std::max(part.end_ns, stamps[i].end_ns);
    if (IsCompute(entry.part.op)) part.start_ns = std::min(part.start_ns, stamps[i].start_ns);
  }
  part.busiest_ns = std::max(part.busiest_ns, busy);
}

// Without a flush, a step of a rank lasts from its last update of the previous step to its last
// update of this one. `step` counts from the first step of the block.
void StepLog::AddStreamed(const Trace& trace, int rank, std::int64_t step, StepPart& part) {
  const Schedule& schedule = trace.schedule();
  const auto updates = static_cast<std::int64_t>(schedule.placement.stages_of(rank).size()) *
                       (schedule.weights == WeightPolicy::kStashed ? schedule.microbatches : 1);
  const std::int64_t of_round = step % schedule.steps;
  const Program& program = trace.program(rank);
  const std::span<const Stamp> stamps = trace.RankStep(rank, step / schedule.steps);
  std::int64_t updated = 0, busy = 0;
  std::int64_t begin = stamps.front().start_ns, end = begin;
  for (std::size_t i = 0; i < program.size() && updated < (of_round + 1) * updates; ++i) {
    const Op op = program[i].part.op;
    if (updated < of_round * updates) {
      begin = stamps[i].end_ns;
    } else if (OccupiesRank(op) && !program[i].ends_pair) {
      busy += stamps[i].end_ns - stamps[i].start_ns;
    }
    end = stamps[i].end_ns;
    if (op == Op::kStep) ++updated;
  }
  part.busiest_ns = std::max(part.busiest_ns, busy);
  part.start_ns = 0;
  part.end_ns = std::max(part.end_ns, end - begin);
}

Status StepLog::Report(std::int64_t step, const StepPart& ended) {
  StepMetric metric;
  metric.step = step;
  metric.loss = ended.loss.value_or(0);
  metric.lr = place_.rate.At(step);
  metric.grad_norm = ended.grad_norm();
  metric.clipped = ended.verdict && ended.verdict->scale != 1;
  metric.skipped = ended.verdict && !ended.verdict->apply;
  metric.bubble = ended.bubble();
  metric.seconds = ended.seconds;
  metrics_.push_back(metric);
  PENSTOCK_TRY_STATUS(place_.folder->Check());
  PENSTOCK_TRY_STATUS(file_.Append(metric));
  progress_.Report(step + 1, total_, {metric.loss, metric.bubble});
  if (!WantsTrace(step)) return {};
  const std::string path = fmt::format("{}/trace-step-{}.json", folder_, step);
  PENSTOCK_TRY_STATUS(WriteStepTrace(
      *trace_, step - first_, fmt::format("Training run {}, step {}", config_.name, step), path));
  traces_.push_back(path);
  return {};
}

}  // namespace penstock
