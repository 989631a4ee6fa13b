#include "runtime/executor/run.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include "base/exception_line.h"
#include "base/index.h"
#include "runtime/executor/executor.h"
#include "runtime/executor/step_gate.h"
#include "runtime/transports/threads.h"
#include "schedule/validate/validate.h"

namespace penstock {
namespace {

using Clock = std::chrono::steady_clock;

// How often the cancellation flag and the ranks' progress are looked at.
constexpr std::chrono::milliseconds kPoll{50};

void PinThread(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (cpu >= 0 && cpu < CPU_SETSIZE) CPU_SET(cpu, &set);
  if (pthread_setaffinity_np(pthread_self(), sizeof(set), &set) != 0) {
    throw std::runtime_error(fmt::format("cannot pin the thread to CPU {}", cpu));
  }
}

class Run {
 public:
  Run(const Schedule& schedule, const RunOptions& options, Transport& transport)
      : options_(options),
        transport_(transport),
        steps_a_round_(schedule.steps),
        gate_(options.stop),
        ranks_(schedule.ranks()) {}

  Status Bind(const Schedule& schedule, std::span<Stage* const> stages, Trace& trace) {
    for (int rank = 0; rank < schedule.ranks(); ++rank) {
      const auto on_step = [this, rank](std::int64_t step) { AfterStep(rank, step); };
      const Binding binding{
          &schedule,          rank, stages, &transport_, &trace, options_.update, on_step,
          options_.on_verdict};
      PENSTOCK_TRY(ranks_[rank].executor, Executor::Bind(binding));
    }
    return {};
  }

  // Returns when every thread has ended.
  Status Execute() {
    for (std::size_t rank = 0; rank < ranks_.size() && !transport_.aborted(); ++rank) {
      StartThread(static_cast<int>(rank));
    }
    Watch();
    for (Rank& rank : ranks_) {
      if (rank.thread.joinable()) rank.thread.join();
    }
    if (transport_.aborted()) return tl::unexpected(transport_.reason());
    if (options_.rounds_run != nullptr) *options_.rounds_run = gate_.begun();
    return {};
  }

 private:
  enum class Phase { kStart, kActions, kAfterStep };

  struct Rank {
    std::unique_ptr<Executor> executor;
    std::thread thread;
    Phase phase = Phase::kStart;      // of its thread alone
    bool running = false;             // guarded by mutex_
    std::uint64_t seen_progress = 0;  // of Watch alone
  };

  void StartThread(int rank) {
    Rank& own = ranks_[rank];
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      own.running = true;
    }
    try {
      own.thread = std::thread([this, rank] { RankMain(rank); });
    } catch (const std::exception& error) {
      transport_.Abort({ErrorCode::kUnavailable,
                        fmt::format("rank {}: cannot start its thread: {}", rank, error.what())});
      const std::lock_guard<std::mutex> lock(mutex_);
      own.running = false;
    }
  }

  // The one place where a stage's exception ends.
  void RankMain(int rank) noexcept {
    Rank& own = ranks_[rank];
    try {
      RunSteps(rank);
    } catch (const InternalError& error) {
      Fail(rank, ErrorCode::kInternal, ExceptionLine(error));
    } catch (const std::exception& error) {
      Fail(rank, ErrorCode::kUnavailable, ExceptionLine(error));
    } catch (...) {
      Fail(rank, ErrorCode::kUnavailable, "an exception that is no std::exception");
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    own.running = false;
    changed_.notify_all();
  }

  void RunSteps(int rank) {
    Rank& own = ranks_[rank];
    pthread_setname_np(pthread_self(), fmt::format("rank {}", rank).c_str());
    if (!options_.cpus.empty()) {
      PinThread(options_.cpus[Index(rank) % options_.cpus.size()]);
    }
    if (options_.on_thread_start) options_.on_thread_start(rank);
    std::int64_t round = 0;
    for (; round < options_.steps && gate_.Begin(round); ++round) {
      const std::int64_t step = options_.first_step + round * steps_a_round_;
      own.phase = Phase::kActions;
      if (!own.executor->RunStep(round, step)) return;
      if (steps_a_round_ == 1) AfterStep(rank, step);
    }
    static_cast<void>(own.executor->Finish(round, options_.first_step + round - 1));
  }

  void AfterStep(int rank, std::int64_t step) {
    Rank& own = ranks_[rank];
    own.phase = Phase::kAfterStep;
    if (options_.on_step) options_.on_step(rank, step);
    own.phase = Phase::kActions;
  }

  void Fail(int rank, ErrorCode code, const std::string& what) {
    const Rank& own = ranks_[rank];
    std::string where;
    switch (own.phase) {
      case Phase::kStart:
        where = "before its first step";
        break;
      case Phase::kActions:
        where = own.executor->CurrentAction();
        break;
      case Phase::kAfterStep:
        where = "after a step";
        break;
    }
    transport_.Abort({code, fmt::format("rank {}: {}: {}", rank, where, what)});
  }

  // Waits until no thread runs; meanwhile looks after cancellation and progress.
  void Watch() {
    const auto poll = std::clamp(options_.watchdog / 4, std::chrono::milliseconds(1), kPoll);
    Clock::time_point last_progress = Clock::now();
    bool told_stuck = false;
    std::unique_lock<std::mutex> lock(mutex_);
    while (!changed_.wait_for(lock, poll, [this] { return !AnyRunning(); })) {
      if (options_.cancel != nullptr && options_.cancel->load() && !transport_.aborted()) {
        transport_.Abort({ErrorCode::kUnavailable, "stopped on request"});
        last_progress = Clock::now();
      }
      if (AnyProgress()) last_progress = Clock::now();
      if (Clock::now() - last_progress < options_.watchdog) continue;
      if (!transport_.aborted()) {
        transport_.Abort({ErrorCode::kDeadlineExceeded, Standstill()});
        last_progress = Clock::now();
      } else if (!told_stuck) {
        told_stuck = true;
        if (options_.on_stuck) options_.on_stuck(transport_.reason());
      }
    }
  }

  bool AnyRunning() const {
    return std::any_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.running; });
  }

  bool AnyProgress() {
    bool any = false;
    for (Rank& rank : ranks_) {
      const std::uint64_t now = rank.executor->progress();
      any = any || now != rank.seen_progress;
      rank.seen_progress = now;
    }
    return any;
  }

  // Who is at fault comes first: the ranks that compute, then those that wait.
  std::string Standstill() const {
    std::string computing;
    std::string waiting;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      if (!ranks_[rank].running) continue;
      std::string& list = ranks_[rank].executor->computing() ? computing : waiting;
      list += fmt::format("; rank {} {}", rank, ranks_[rank].executor->Doing());
    }
    return fmt::format("no rank made progress for {} s{}{}",
                       std::chrono::duration<double>(options_.watchdog).count(), computing,
                       waiting);
  }

  const RunOptions& options_;
  Transport& transport_;
  int steps_a_round_;
  StepGate gate_;
  std::vector<Rank> ranks_;
  std::mutex mutex_;
  std::condition_variable changed_;
};

Status CheckOptions(const Schedule& schedule, std::span<Stage* const> stages,
                    const RunOptions& options) {
  if (options.steps < 0) return InvalidArgument("steps: {}; at least 0 are run", options.steps);
  if (options.watchdog <= std::chrono::milliseconds(0)) {
    return InvalidArgument("watchdog: {} ms; a run needs a limit", options.watchdog.count());
  }
  if (static_cast<int>(stages.size()) != schedule.stages()) {
    return InvalidArgument("{} stages were given, the schedule has {}", stages.size(),
                           schedule.stages());
  }
  const std::vector<Fault> faults = Validate(schedule, {.max_faults = 1});
  if (!faults.empty()) {
    const Fault& fault = faults.front();
    return InvalidArgument("the schedule is not valid: rank {}, action {} ({}): {}", fault.rank,
                           fault.position, fault.action, fault.reason);
  }
  return {};
}

}  // namespace

Status RunRanks(const Schedule& schedule, std::span<Stage* const> stages,
                const RunOptions& options) {
  PENSTOCK_TRY_STATUS(CheckOptions(schedule, stages, options));
  std::optional<ThreadTransport> threads;
  if (options.transport == nullptr) threads.emplace(MessageMap(schedule));
  Transport& transport = threads ? *threads : *options.transport;
  std::optional<Trace> scratch;
  if (options.trace == nullptr) {
    PENSTOCK_TRY(scratch, Trace::Make(schedule, 1));
  }
  Run run(schedule, options, transport);
  PENSTOCK_TRY_STATUS(run.Bind(schedule, stages, scratch ? *scratch : *options.trace));
  return run.Execute();
}

}  // namespace penstock
