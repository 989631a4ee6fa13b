#include "train/run/step_runner.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>
#include <stdexcept>

#include "config/run_schedule.h"
#include "runtime/executor/run.h"

namespace penstock {
namespace {

constexpr int kKeptSteps = 32;            // of the trace
constexpr int kFirstBlock = 6;            // steps before the first estimate of a time limit
constexpr std::int64_t kBlocks = 8;       // a block is this fraction of the steps left
constexpr std::int64_t kTracedSteps = 3;  // minimum steps of a block that replaces the kept trace

}  // namespace

StepRunner::StepRunner(const RunContext& run, Pipeline& pipeline, StepLog& log,
                       CheckpointWriter& checkpoints, HeldOutLoss& held_out, BestLoss best)
    : run_(run),
      pipeline_(pipeline),
      log_(log),
      checkpoints_(checkpoints),
      held_out_(held_out),
      drains_(DrainsForCheckpoints(run.config, run.schedule)),
      last_rank_(run.schedule.placement.rank_of(run.schedule.stages() - 1)),
      total_(run.config.steps),
      best_(best) {}

Status StepRunner::Run(std::int64_t done) {
  const std::int64_t first = done;
  const double begin = log_.elapsed();
  done_ = done;
  const Status status = RunSteps();
  seconds_ = log_.elapsed();
  if (done_ > first) steps_per_second_ = static_cast<double>(done_ - first) / (seconds_ - begin);
  log_.Finish();
  PENSTOCK_TRY_STATUS(status);
  const bool due = ended_early() ? done_ > first : WritesCheckpoints(run_.config);
  return due ? checkpoints_.Finish(done_, seconds_) : Status();
}

Status StepRunner::RunSteps() {
  const bool timed = run_.config.seconds > 0;
  if (timed && done_ > 0) PENSTOCK_TRY_STATUS(Estimate(done_));
  // A process that ended before the evaluation that was due left it to this one.
  PENSTOCK_TRY(bool stop, Evaluate());
  while (done_ < total_ && !stop) {
    const std::int64_t before = done_;
    PENSTOCK_TRY_STATUS(RunBlock(done_, BlockSize(done_)));
    if (done_ == before) break;  // a stop was requested before the first step of the block
    if (drains_) WriteDrainedCheckpoint(done_);
    PENSTOCK_TRY(stop, Evaluate());
    if (timed && !stop) PENSTOCK_TRY_STATUS(Estimate(done_));
  }
  return {};
}

// Evaluates if it is due. Returns whether the run ends here, on all processes.
Result<bool> StepRunner::Evaluate() {
  const ValidationConfig& config = run_.config.validation;
  PENSTOCK_TRY(bool stop, run_.StopRequested());
  if (stop || config.freq == 0 || done_ == 0 || done_ % config.freq != 0) return stop;
  PENSTOCK_TRY(const double last,
               run_.processes.FromLeader(static_cast<double>(best_.last_step())));
  if (static_cast<std::int64_t>(last) + 1 < done_) PENSTOCK_TRY_STATUS(EvaluateNow());
  PENSTOCK_TRY(stop, run_.StopRequested());
  if (stop || config.patience == 0) return stop;
  PENSTOCK_TRY(const double since, run_.processes.FromLeader(static_cast<double>(best_.since())));
  if (since < config.patience) return false;
  total_ = done_;
  return true;
}

Status StepRunner::EvaluateNow() {
  const auto begin = std::chrono::steady_clock::now();
  const double loss = held_out_.After(done_);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  PENSTOCK_TRY(const bool stop, run_.StopRequested());
  if (stop) return {};  // the loss is not complete
  const HeldOutMetric metric{done_ - 1, loss};
  const bool is_best = best_.Add(metric);
  PENSTOCK_TRY_STATUS(run_.processes.All(log_.AfterEvaluation(metric, is_best, took.count())));
  PENSTOCK_TRY(const double keep, run_.processes.FromLeader(is_best ? 1.0 : 0.0));
  if (keep == 0 || !run_.config.checkpoint.best) return {};
  return checkpoints_.KeepBest(done_, log_.elapsed());
}

std::int64_t StepRunner::BlockSize(std::int64_t done) const {
  std::int64_t left = total_ - done;
  const std::int64_t every = run_.config.checkpoint.every;
  if (drains_) left = std::min(left, every - done % every);
  const std::int64_t evaluate = run_.config.validation.freq;
  if (evaluate > 0) left = std::min(left, evaluate - done % evaluate);
  if (run_.schedule.steps > 1 && run_.config.pipeline.csv.empty()) {
    left = std::min<std::int64_t>(left, run_.schedule.steps);
  }
  if (run_.config.seconds <= 0) return left;
  if (done == 0) return std::min<std::int64_t>(left, kFirstBlock);
  return std::min(left, std::max<std::int64_t>(kTracedSteps, (total_ - done) / kBlocks));
}

// Estimates from the steps so far how many the time limit allows. The learning rate follows.
Status StepRunner::Estimate(std::int64_t done) {
  PENSTOCK_TRY(const double elapsed, run_.processes.FromLeader(log_.elapsed()));
  const double more = (run_.config.seconds - elapsed) / elapsed * static_cast<double>(done);
  const auto most = static_cast<double>(run_.config.steps - done);
  total_ = done + static_cast<std::int64_t>(std::clamp(more, 0.0, most));
  pipeline_.rate->steps = total_;
  return {};
}

Status StepRunner::RunBlock(std::int64_t first, std::int64_t steps) {
  PENSTOCK_TRY(const Schedule* schedule, BlockSchedule(steps));
  PENSTOCK_TRY(Trace trace, Trace::Make(*schedule, schedule->steps == 1 ? kKeptSteps : 1,
                                        run_.RanksOf(0).here()));
  auto block_trace = std::make_unique<Trace>(std::move(trace));
  RunOptions options;
  options.steps = steps / schedule->steps;
  options.update = UpdateRuleOf(run_.config.optimizer);
  options.update.zero = pipeline_.zero;
  options.on_verdict = [this](std::int64_t step, const Verdict& verdict) {
    log_.AfterVerdict(step, verdict);
  };
  options.first_step = first;
  options.watchdog =
      std::chrono::milliseconds(static_cast<std::int64_t>(run_.config.watchdog * 1e3));
  options.stop = run_.options.stop;
  std::int64_t rounds = 0;
  options.rounds_run = &rounds;
  options.on_stuck = run_.options.on_stuck;
  options.on_thread_start = [threads = run_.threads()](int) { at::set_num_threads(threads); };
  options.on_step = [this](int rank, std::int64_t step) { AfterStep(rank, step); };
  options.trace = block_trace.get();
  options.planes = run_.planes();
  log_.Begin(*block_trace, first, total_);
  const std::vector<Stage*> stages = pipeline_.pointers();
  options.ranks = &run_.ranks;
  options.group = run_.processes.group();
  PENSTOCK_TRY_STATUS(RunRanks(*schedule, stages, options));
  PENSTOCK_TRY_STATUS(log_.End(rounds * schedule->steps));
  done_ += rounds * schedule->steps;
  if (rounds > 0 && (trace_ == nullptr || steps >= kTracedSteps)) {
    trace_ = std::move(block_trace);
    first_traced_ = first;
  }
  return {};
}

// A schedule without a flush is generated for the block's number of steps.
Result<const Schedule*> StepRunner::BlockSchedule(std::int64_t steps) {
  if (run_.schedule.steps == 1 || steps % run_.schedule.steps == 0) return &run_.schedule;
  PENSTOCK_TRY(Schedule schedule, ScheduleOver(run_.config, steps));
  schedules_.push_back(std::make_unique<Schedule>(std::move(schedule)));
  return schedules_.back().get();
}

// The first plane logs. The others have the same loss and norms.
void StepRunner::AfterStep(int mesh_rank, std::int64_t step) {
  if (mesh_rank % run_.planes() == 0) {
    LogStep(mesh_rank / run_.planes(), step);
  } else {
    log_.PassTraceRequest();
  }
  if (!drains_) checkpoints_.AfterStep(mesh_rank, step + 1, log_.elapsed());
}

void StepRunner::LogStep(int rank, std::int64_t step) {
  std::optional<double> loss;
  if (rank == last_rank_) loss = pipeline_.StepLoss();
  const bool skips = run_.config.optimizer.nonfinite == "skip";
  if (loss && !std::isfinite(*loss) && !skips) {
    throw std::runtime_error(
        fmt::format("the loss of step {} is {}: use a smaller optimizer.lr", step, *loss));
  }
  log_.AfterStep(rank, step, loss, NormsOf(rank));
}

// Skips replicas that would count a norm twice.
std::vector<StageNorm> StepRunner::NormsOf(int rank) const {
  std::vector<StageNorm> norms;
  for (const int stage : run_.schedule.placement.stages_of(rank)) {
    const int chain = stage / run_.schedule.placement.chain_length();
    if (!pipeline_.IsFirstOfShard(chain)) continue;
    Optimizer& optimizer = *pipeline_.optimizers[stage];
    // As the first stages of the shards would report them, so that the order of additions is the
    // same for all values of parallel.zero.
    int of_shard = stage;
    for (const double norm : optimizer.TakeMeanSquaredNorms()) {
      norms.push_back({of_shard, norm});
      of_shard += run_.schedule.placement.chain_length();
    }
  }
  return norms;
}

// Requires: no rank is running. A run that resumes from the checkpoint has no older weights, so
// this run must not use them either.
void StepRunner::WriteDrainedCheckpoint(std::int64_t done) {
  if (done % run_.config.checkpoint.every != 0) return;
  for (const int rank : run_.ranks.here()) {
    checkpoints_.AfterStep(rank, done, log_.elapsed());
  }
  for (Stage* const stage : pipeline_.pointers()) {
    if (stage != nullptr) static_cast<TorchStage*>(stage)->Restart();
  }
}

}  // namespace penstock
