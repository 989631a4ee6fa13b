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

StepRunner::StepRunner(const RunParts& parts, BestLoss best)
    : parts_(parts),
      drains_(DrainsForCheckpoints(parts.config, parts.schedule)),
      last_rank_(parts.schedule.placement.rank_of(parts.schedule.stages() - 1)),
      total_(parts.config.steps),
      best_(best) {}

Status StepRunner::Run(std::int64_t done) {
  const std::int64_t first = done;
  const double begin = parts_.log.elapsed();
  done_ = done;
  const Status status = RunSteps();
  seconds_ = parts_.log.elapsed();
  if (done_ > first) steps_per_second_ = static_cast<double>(done_ - first) / (seconds_ - begin);
  parts_.log.Finish();
  PENSTOCK_TRY_STATUS(status);
  const bool due = ended_early() ? done_ > first : WritesCheckpoints(parts_.config);
  return due ? parts_.checkpoints.Finish(done_, seconds_) : Status();
}

Status StepRunner::RunSteps() {
  const bool timed = parts_.config.seconds > 0;
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
  const ValidationConfig& config = parts_.config.validation;
  PENSTOCK_TRY(bool stop, StopRequested());
  if (stop || config.freq == 0 || done_ == 0 || done_ % config.freq != 0) return stop;
  PENSTOCK_TRY(const double last,
               parts_.processes.FromLeader(static_cast<double>(best_.last_step())));
  if (static_cast<std::int64_t>(last) + 1 < done_) PENSTOCK_TRY_STATUS(EvaluateNow());
  PENSTOCK_TRY(stop, StopRequested());
  if (stop || config.patience == 0) return stop;
  PENSTOCK_TRY(const double since, parts_.processes.FromLeader(static_cast<double>(best_.since())));
  if (since < config.patience) return false;
  total_ = done_;
  return true;
}

Status StepRunner::EvaluateNow() {
  const auto begin = std::chrono::steady_clock::now();
  const double loss = parts_.held_out.After(done_);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  PENSTOCK_TRY(const bool stop, StopRequested());
  if (stop) return {};  // the loss is not complete
  const HeldOutMetric metric{done_ - 1, loss};
  const bool is_best = best_.Add(metric);
  PENSTOCK_TRY_STATUS(
      parts_.processes.All(parts_.log.AfterEvaluation(metric, is_best, took.count())));
  PENSTOCK_TRY(const double keep, parts_.processes.FromLeader(is_best ? 1.0 : 0.0));
  if (keep == 0 || !parts_.config.checkpoint.best) return {};
  return parts_.checkpoints.KeepBest(done_, parts_.log.elapsed());
}

// Returns the same on all processes.
Result<bool> StepRunner::StopRequested() {
  return parts_.processes.Any(parts_.options.stop != nullptr && parts_.options.stop->load());
}

std::int64_t StepRunner::BlockSize(std::int64_t done) const {
  std::int64_t left = total_ - done;
  const std::int64_t every = parts_.config.checkpoint.every;
  if (drains_) left = std::min(left, every - done % every);
  const std::int64_t evaluate = parts_.config.validation.freq;
  if (evaluate > 0) left = std::min(left, evaluate - done % evaluate);
  if (parts_.schedule.steps > 1 && parts_.config.pipeline.csv.empty()) {
    left = std::min<std::int64_t>(left, parts_.schedule.steps);
  }
  if (parts_.config.seconds <= 0) return left;
  if (done == 0) return std::min<std::int64_t>(left, kFirstBlock);
  return std::min(left, std::max<std::int64_t>(kTracedSteps, (total_ - done) / kBlocks));
}

// Estimates from the steps so far how many the time limit allows. The learning rate follows.
Status StepRunner::Estimate(std::int64_t done) {
  PENSTOCK_TRY(const double elapsed, parts_.processes.FromLeader(parts_.log.elapsed()));
  const double more = (parts_.config.seconds - elapsed) / elapsed * static_cast<double>(done);
  const auto most = static_cast<double>(parts_.config.steps - done);
  total_ = done + static_cast<std::int64_t>(std::clamp(more, 0.0, most));
  parts_.pipeline.rate->steps = total_;
  return {};
}

Status StepRunner::RunBlock(std::int64_t first, std::int64_t steps) {
  PENSTOCK_TRY(const Schedule* schedule, BlockSchedule(steps));
  PENSTOCK_TRY(Trace trace,
               Trace::Make(*schedule, schedule->steps == 1 ? kKeptSteps : 1, parts_.ranks.here()));
  auto block_trace = std::make_unique<Trace>(std::move(trace));
  RunOptions run;
  run.steps = steps / schedule->steps;
  run.update = UpdateRuleOf(parts_.config.optimizer);
  run.update.zero = parts_.pipeline.zero;
  run.on_verdict = [this](std::int64_t step, const Verdict& verdict) {
    parts_.log.AfterVerdict(step, verdict);
  };
  run.first_step = first;
  run.watchdog = std::chrono::milliseconds(static_cast<std::int64_t>(parts_.config.watchdog * 1e3));
  run.stop = parts_.options.stop;
  std::int64_t rounds = 0;
  run.rounds_run = &rounds;
  run.on_stuck = parts_.options.on_stuck;
  run.on_thread_start = [this](int) { at::set_num_threads(parts_.threads); };
  run.on_step = [this](int rank, std::int64_t step) { AfterStep(rank, step); };
  run.trace = block_trace.get();
  parts_.log.Begin(*block_trace, first, total_);
  const std::vector<Stage*> stages = parts_.pipeline.pointers();
  run.ranks = &parts_.ranks;
  run.group = parts_.processes.group();
  PENSTOCK_TRY_STATUS(RunRanks(*schedule, stages, run));
  PENSTOCK_TRY_STATUS(parts_.log.End(rounds * schedule->steps));
  done_ += rounds * schedule->steps;
  if (rounds > 0 && (trace_ == nullptr || steps >= kTracedSteps)) {
    trace_ = std::move(block_trace);
    first_traced_ = first;
  }
  return {};
}

// A schedule without a flush is generated for the block's number of steps.
Result<const Schedule*> StepRunner::BlockSchedule(std::int64_t steps) {
  if (parts_.schedule.steps == 1 || steps % parts_.schedule.steps == 0) return &parts_.schedule;
  PENSTOCK_TRY(Schedule schedule, ScheduleOver(parts_.config, steps));
  schedules_.push_back(std::make_unique<Schedule>(std::move(schedule)));
  return schedules_.back().get();
}

void StepRunner::AfterStep(int rank, std::int64_t step) {
  std::optional<double> loss;
  if (rank == last_rank_) loss = parts_.pipeline.StepLoss();
  const bool skips = parts_.config.optimizer.nonfinite == "skip";
  if (loss && !std::isfinite(*loss) && !skips) {
    throw std::runtime_error(
        fmt::format("the loss of step {} is {}: use a smaller optimizer.lr", step, *loss));
  }
  parts_.log.AfterStep(rank, step, loss, NormsOf(rank));
  if (!drains_) parts_.checkpoints.AfterStep(rank, step + 1, parts_.log.elapsed());
}

// Skips replicas whose norms are those of others.
std::vector<StageNorm> StepRunner::NormsOf(int rank) const {
  std::vector<StageNorm> norms;
  for (const int stage : parts_.schedule.placement.stages_of(rank)) {
    const int chain = stage / parts_.schedule.placement.chain_length();
    if (!parts_.pipeline.IsFirstOfShard(chain)) continue;
    Optimizer& optimizer = *parts_.pipeline.optimizers[stage];
    // As the first stages of the shards would report them, so that the order of additions is the
    // same for all values of parallel.zero.
    int of_shard = stage;
    for (const double norm : optimizer.TakeMeanSquaredNorms()) {
      norms.push_back({of_shard, norm});
      of_shard += parts_.schedule.placement.chain_length();
    }
  }
  return norms;
}

// Requires: no rank is running. A run that resumes from the checkpoint has no older weights, so
// this run must not use them either.
void StepRunner::WriteDrainedCheckpoint(std::int64_t done) {
  if (done % parts_.config.checkpoint.every != 0) return;
  for (const int rank : parts_.ranks.here()) {
    parts_.checkpoints.AfterStep(rank, done, parts_.log.elapsed());
  }
  for (const auto& stage : parts_.pipeline.stages) {
    if (stage != nullptr) stage->Restart();
  }
}

}  // namespace penstock
