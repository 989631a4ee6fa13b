#include "train/run/step_log.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "base/log.h"
#include "base/units.h"
#include "config/sequence_lengths.h"
#include "runtime/measure/gather_trace.h"
#include "runtime/processes/collectives.h"
#include "train/log/step_trace.h"

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

// Adds the rank's times and memory to `part`. `step` counts from the first step of the trace. For a
// schedule that flushes, follows the rules of MeasureRound; start and end are times of the leader's
// clock. Otherwise a step of a rank lasts from
// its last update of the previous step to its last update of this one, and start_ns is 0.
void AddRankStep(const Trace& trace, int rank, std::int64_t step, const ClockOffset& clock,
                 StepPart& part) {
  if (trace.schedule().steps == 1) {
    AddFlushed(trace, rank, step, clock, part);
  } else {
    AddStreamed(trace, rank, step, part);
  }
}

// The figures of ranks are only for the file: a long run would need much memory for them.
std::vector<StepMetric> WithoutRanks(std::vector<StepMetric> metrics) {
  for (StepMetric& metric : metrics) metric.ranks = {};
  return metrics;
}

}  // namespace

StepLog::StepLog(const RunContext& run, const LearningRate& rate, const RunStart& start)
    : run_(run),
      rate_(rate),
      has_verdicts_(UpdateRuleOf(run.config.optimizer).needs_norm()),
      progress_(run.log(), TokensPerStep(run.config), {start.step(), start.seconds()}),
      file_(run.path() + "/metrics.jsonl", start.metrics, start.held_out),
      metrics_(WithoutRanks(start.metrics)),
      held_out_(start.held_out),
      last_seconds_(start.seconds()) {}

void StepLog::Begin(Trace& trace, std::int64_t first, std::int64_t total) {
  trace_ = &trace;
  first_ = first;
  total_ = total;
  {
    const MutexLock lock(mutex_);
    reported_ = 0;
  }
  if (run_.processes.processes() == 1) return;
  channel_ = std::make_unique<Channel>(*run_.processes.group());
  channel_->Open(
      [this](int, const FrameTag& tag, const Message& message) { OnFrame(tag, message); },
      [this](const Error&) {
        const MutexLock lock(mutex_);  // so that no wait misses it
        changed_.NotifyAll();
      });
}

Status StepLog::End(std::int64_t steps) {
  if (!channel_) return {};
  const ProcessGroup& group = *run_.processes.group();
  MutexLock lock(mutex_);
  if (!run_.processes.leads()) return failure_;
  while (reported_ != steps && failure_ && !group.aborted()) changed_.Wait(lock);
  if (!failure_ || reported_ == steps) return failure_;
  return tl::unexpected(group.reason());
}

Status StepLog::AfterEvaluation(const HeldOutMetric& metric, bool is_best, double seconds) {
  const MutexLock lock(mutex_);
  progress_.AddPause(seconds);
  held_out_.push_back(metric);
  if (!run_.processes.leads()) return {};
  progress_.Finish();
  Log(run_.log(), "step {}/{}  held-out loss {:.4f}{}  in {}\n", metric.step + 1, total_,
      metric.loss, is_best ? ", the lowest so far" : "", FormatSeconds(seconds));
  std::fflush(run_.log());
  PENSTOCK_TRY_STATUS(run_.folder->Check());
  return file_.Append(metric);
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

std::vector<HeldOutMetric> StepLog::held_out() {
  const MutexLock lock(mutex_);
  return held_out_;
}

std::vector<std::string> StepLog::files() {
  const MutexLock lock(mutex_);
  std::vector<std::string> files = {run_.path() + "/metrics.jsonl"};
  files.insert(files.end(), traces_.begin(), traces_.end());
  return files;
}

void StepLog::AfterStep(int rank, std::int64_t step, std::optional<double> loss,
                        std::span<const StageNorm> norms) {
  const MutexLock lock(mutex_);
  if (!failure_) throw std::runtime_error(failure_.error().line());
  StepPart part;
  part.loss = loss;
  for (const StageNorm& norm : norms) part.squared_norms[norm.stage] = norm.squared;
  AddRankStep(*trace_, rank, step - first_, run_.clock, part);
  part.trace_requested = TakeTraceRequest();
  Add(step, part, rank);
}

void StepLog::PassTraceRequest() {
  if (!TakeTraceRequest()) return;
  const MutexLock lock(mutex_);
  trace_requested_ = true;
  if (!run_.processes.leads()) channel_->Send(0, {kTraceRequest, 0, 0}, AllocateMessage(0));
}

void StepLog::AfterVerdict(std::int64_t step, const Verdict& verdict) {
  const MutexLock lock(mutex_);
  StepPart part;
  part.verdict = verdict;
  Add(step, part, -1);
}

void StepLog::Add(std::int64_t step, const StepPart& part, int rank) {
  if (!run_.processes.leads()) {
    ByteWriter writer;
    part.Put(writer);
    if (rank >= 0 && SendsStamps(step)) PutStamps(*trace_, rank, step - first_, run_.clock, writer);
    channel_->Send(0, {kPart, 0, step}, CopyToMessage(writer.bytes()));
    return;
  }
  StepPart& open = open_[step];
  open.Add(part);
  if (!part.ranks.empty()) open.seconds = progress_.elapsed();
  ReportIfComplete(step);
}

// With post-validation, the verdict on a step comes after the step.
void StepLog::ReportIfComplete(std::int64_t step) {
  const StepPart& open = open_.at(step);
  if (std::ssize(open.ranks) < run_.schedule.ranks() || (has_verdicts_ && !open.verdict)) return;
  const Status reported = Report(step, open);
  open_.erase(step);
  ++reported_;
  changed_.NotifyAll();
  if (!reported) throw std::runtime_error(reported.error().line());
}

void StepLog::OnFrame(const FrameTag& tag, const Message& message) {
  const MutexLock lock(mutex_);
  if (tag.kind == kTraceRequest) {
    trace_requested_ = true;
    return;
  }
  ByteReader reader(TextOf(message));
  const StepPart part = StepPart::Take(reader);
  while (!reader.at_end()) TakeStamps(reader, *trace_);
  try {
    Add(tag.number, part, -1);
  } catch (const std::exception& error) {
    if (failure_) failure_ = MakeError(ErrorCode::kUnavailable, "{}", error.what());
    changed_.NotifyAll();
  }
}

bool StepLog::WantsTrace(std::int64_t step) const {
  return std::ranges::find(run_.config.trace_steps, step) != run_.config.trace_steps.end();
}

bool StepLog::TakeTraceRequest() {
  return run_.options.trace_request != nullptr && run_.options.trace_request->exchange(false);
}

// A signal may request any step, and a process learns of it only after it has ended the step. So
// every step is sent with its stamps if a signal can request it.
bool StepLog::SendsStamps(std::int64_t step) const {
  return WantsTrace(step) || (run_.options.trace_request != nullptr && HasStepTimelines());
}

bool StepLog::HasStepTimelines() const { return trace_->schedule().steps == 1; }

Status StepLog::Report(std::int64_t step, const StepPart& ended) {
  StepMetric metric;
  metric.step = step;
  metric.loss = ended.loss.value_or(0);
  metric.lr = rate_.At(step);
  metric.grad_norm = ended.grad_norm();
  metric.clipped = ended.verdict && ended.verdict->scale != 1;
  metric.skipped = ended.verdict && !ended.verdict->apply;
  metric.bubble = ended.bubble();
  metric.seconds = ended.seconds;
  const double seconds = ended.seconds - std::exchange(last_seconds_, ended.seconds);
  const auto tokens = static_cast<double>(TokensPerStep(run_.config));
  metric.tokens_per_second = seconds > 0 ? tokens / seconds : 0;
  metric.ranks = ended.rank_metrics();
  PENSTOCK_TRY_STATUS(run_.folder->Check());
  PENSTOCK_TRY_STATUS(file_.Append(metric));
  metric.ranks = {};
  metrics_.push_back(metric);
  progress_.Report(step + 1, total_, {metric.loss, metric.bubble});
  const bool requested = std::exchange(trace_requested_, false) || ended.trace_requested;
  if (WantsTrace(step)) return WriteTrace(step);
  if (requested) WriteRequestedTrace(step);
  return {};
}

Status StepLog::WriteTrace(std::int64_t step) {
  const std::string path = fmt::format("{}/trace-step-{}.json", run_.path(), step);
  PENSTOCK_TRY_STATUS(
      WriteStepTrace(*trace_, step - first_,
                     fmt::format("Training run {}, step {}", run_.config.name, step), path));
  traces_.push_back(path);
  return {};
}

// A failure does not end the run, which works without the file.
void StepLog::WriteRequestedTrace(std::int64_t step) {
  progress_.Finish();
  if (!HasStepTimelines()) {
    Log(run_.log(), "no timeline of step {}: schedule '{}' does not flush, so its steps overlap\n",
        step, trace_->schedule().algorithm);
  } else if (const Status status = WriteTrace(step); !status) {
    Log(run_.log(), "no timeline of step {}: {}\n", step, status.error().line());
  } else {
    Log(run_.log(), "wrote {}\n", traces_.back());
  }
  std::fflush(run_.log());
}

}  // namespace penstock
