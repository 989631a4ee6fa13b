#include "runtime/executor/run.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include "base/exception_line.h"
#include "base/index.h"
#include "base/mutex.h"
#include "base/system/own_time.h"
#include "runtime/executor/executor.h"
#include "runtime/executor/step_queue.h"
#include "runtime/processes/run_control.h"
#include "runtime/transports/transports.h"
#include "schedule/validate/validate.h"

namespace penstock {
namespace {

using Clock = std::chrono::steady_clock;

// How often to check the cancellation flag and the progress of the ranks.
constexpr std::chrono::milliseconds kPoll{50};
// How often to report the ranks' actions to another process.
constexpr std::int64_t kPollsPerReport = 10;

void PinThread(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (cpu >= 0 && cpu < CPU_SETSIZE) CPU_SET(cpu, &set);
  if (pthread_setaffinity_np(pthread_self(), sizeof(set), &set) != 0) {
    throw std::runtime_error(fmt::format("cannot pin the thread to CPU {}", cpu));
  }
}

// What the ranks of one plane are bound to.
struct Plane {
  RunOptions options;
  std::unique_ptr<Transport> transport;  // null if the options have one
  std::optional<Trace> trace;            // empty if the options have one
  std::optional<Binding> binding;

  // All planes have the transport of this kind, because each process creates channels for all of
  // them.
  Status Make(const Schedule& schedule, std::span<Stage* const> stages, const LocalRanks& ranks,
              const MessageMap& messages, std::string_view kind) {
    if (options.transport == nullptr) {
      PENSTOCK_TRY(transport, MakeTransport(kind, {messages, ranks, options.group}));
    }
    if (options.trace == nullptr) {
      PENSTOCK_TRY(trace, Trace::Make(schedule, 1, ranks.here()));
    }
    binding.emplace(Binding{schedule, stages, transport ? *transport : *options.transport,
                            trace ? *trace : *options.trace, options});
    return {};
  }
};

class Run {
 public:
  // The planes have been made. The transport of the first one has the reason if the run is aborted.
  Run(const std::vector<Plane>& planes, const LocalRanks& ranks)
      : planes_(planes),
        options_(planes.front().options),
        transport_(planes.front().binding->transport),
        control_(options_.group, options_.stop, transport_),
        ranks_(ranks.here().size()) {
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      ranks_[i].number = ranks.here()[i];
      ranks_[i].plane = Index(ranks_[i].number) % planes.size();
      ranks_[i].in_schedule = ranks_[i].number / static_cast<int>(planes.size());
    }
  }

  Status Bind() {
    for (Rank& rank : ranks_) {
      const auto on_step = [this, &rank](std::int64_t step) { AfterStep(rank, step); };
      PENSTOCK_TRY(rank.executor,
                   Executor::Bind(*planes_[rank.plane].binding, rank.in_schedule, on_step));
    }
    return {};
  }

  // Returns when every thread has ended.
  Status Execute() {
    for (Rank& rank : ranks_) {
      if (!transport_.aborted()) StartThread(rank);
    }
    Watch();
    for (Rank& rank : ranks_) {
      if (rank.thread.joinable()) rank.thread.join();
    }
    control_.End();
    if (transport_.aborted()) {
      control_.Abort(transport_.reason());
      return tl::unexpected(transport_.reason());
    }
    if (options_.rounds_run != nullptr) *options_.rounds_run = control_.gate().begun();
    return {};
  }

 private:
  enum class Phase { kStart, kActions, kAfterStep };

  struct Rank {
    int number = 0;
    int in_schedule = 0;
    std::size_t plane = 0;
    std::unique_ptr<Executor> executor;
    std::thread thread;
    Phase phase = Phase::kStart;      // of its thread alone
    std::uint64_t seen_progress = 0;  // of Watch alone
  };

  void StartThread(Rank& rank) {
    {
      const MutexLock lock(mutex_);
      running_.insert(rank.number);
    }
    try {
      rank.thread = std::thread([this, &rank] { RankMain(rank); });
    } catch (const std::exception& error) {
      transport_.Abort({ErrorCode::kUnavailable, fmt::format("rank {}: cannot start its thread: {}",
                                                             rank.number, error.what())});
      const MutexLock lock(mutex_);
      running_.erase(rank.number);
    }
  }

  // Catches all exceptions of a stage.
  void RankMain(Rank& rank) noexcept {
    try {
      RunSteps(rank);
    } catch (const InternalError& error) {
      Fail(rank, ErrorCode::kInternal, ExceptionLine(error));
    } catch (const std::exception& error) {
      Fail(rank, ErrorCode::kUnavailable, ExceptionLine(error));
    } catch (...) {
      Fail(rank, ErrorCode::kUnavailable, "an exception that is not a std::exception");
    }
    const MutexLock lock(mutex_);
    running_.erase(rank.number);
    changed_.NotifyAll();
  }

  void RunSteps(Rank& rank) {
    pthread_setname_np(pthread_self(), fmt::format("rank {}", rank.number).c_str());
    if (!options_.cpus.empty()) {
      PinThread(options_.cpus[Index(rank.number) % options_.cpus.size()]);
    }
    if (options_.on_thread_start) options_.on_thread_start(rank.number);
    std::int64_t round = 0;
    for (; round < options_.steps && Begin(round); ++round) {
      const int steps = planes_.front().binding->schedule.steps;
      const std::int64_t step = options_.first_step + round * steps;
      rank.phase = Phase::kActions;
      if (!rank.executor->RunStep(round, step)) return;
      if (steps == 1) AfterStep(rank, step);
    }
    static_cast<void>(rank.executor->Finish(round, options_.first_step + round - 1));
  }

  // Returns whether the rank runs another round.
  bool Begin(std::int64_t round) {
    if (options_.queue != nullptr && !options_.queue->Await(round)) return false;
    return control_.gate().Begin(round);
  }

  void AfterStep(Rank& rank, std::int64_t step) {
    rank.phase = Phase::kAfterStep;
    if (options_.on_step) options_.on_step(rank.number, step);
    rank.phase = Phase::kActions;
  }

  void Fail(const Rank& rank, ErrorCode code, const std::string& what) {
    // The rank may have waited in a collective for a process that is lost.
    if (options_.group != nullptr && options_.group->aborted()) {
      return transport_.Abort(options_.group->reason());
    }
    std::string where;
    switch (rank.phase) {
      case Phase::kStart:
        where = "before its first step";
        break;
      case Phase::kActions:
        where = rank.executor->CurrentAction();
        break;
      case Phase::kAfterStep:
        where = "after a step";
        break;
    }
    transport_.Abort(
        {code, fmt::format("rank {}{}: {}: {}", rank.number, ProcessText(), where, what)});
  }

  // Returns the process of this process's ranks, if there are several: " (process 3 on node17)".
  std::string ProcessText() const {
    const ProcessGroup* const group = options_.group;
    if (group == nullptr || group->processes() == 1) return "";
    return fmt::format(" ({})", group->NameOf(group->process()));
  }

  // Waits until no thread runs, and meanwhile checks for cancellation and progress.
  void Watch() {
    const auto poll = std::clamp(options_.watchdog / 4, std::chrono::milliseconds(1), kPoll);
    OwnTimeLimit standstill(options_.watchdog);
    bool reported_standstill = false;
    bool reported_stuck = false;
    const bool several_processes = options_.group != nullptr && options_.group->processes() > 1;
    std::int64_t polls = 0;
    MutexLock lock(mutex_);
    while (WaitForEnd(lock, poll)) {
      if (transport_.aborted()) EndWaits();
      if (several_processes && polls++ % kPollsPerReport == 0) {
        control_.ReportActions(OwnActions());
      }
      if (AbortOnRequest()) standstill.Restart();
      if (AnyProgress() || IsIdle()) {
        standstill.Restart();
        reported_standstill = false;
      }
      const auto standing = standstill.Elapsed();
      // Early enough for the reports of the other processes, whichever process ends the run.
      if (standing >= options_.watchdog / 2 && !std::exchange(reported_standstill, true)) {
        control_.ReportStandstill(OwnStandstill());
      }
      if (standing < options_.watchdog) continue;
      if (!transport_.aborted()) {
        transport_.Abort({ErrorCode::kDeadlineExceeded, StandstillText()});
        standstill.Restart();
      } else if (!reported_stuck) {
        reported_stuck = true;
        if (options_.on_stuck) options_.on_stuck(transport_.reason());
      }
    }
  }

  // Aborts the run if it was cancelled, or if another process has ended its session. Returns
  // whether it did.
  bool AbortOnRequest() {
    if (transport_.aborted()) return false;
    if (options_.cancel != nullptr && options_.cancel->load()) {
      transport_.Abort({ErrorCode::kUnavailable, "stopped on request"});
    } else if (options_.queue != nullptr && control_.gate().IsAhead()) {
      // The other process's ranks do not begin a step that it did not request.
      transport_.Abort({ErrorCode::kUnavailable, std::string(kSessionEnded)});
    }
    return transport_.aborted();
  }

  // Whether the ranks of this process wait for the next step of a session.
  bool IsIdle() const { return options_.queue != nullptr && options_.queue->idle(); }

  // Ends the waits of all processes, and the waits of stages for each other.
  void EndWaits() {
    control_.Abort(transport_.reason());
    if (options_.queue != nullptr) options_.queue->Close();
    for (const Plane& plane : planes_) {
      if (!plane.binding->transport.aborted()) plane.binding->transport.Abort(transport_.reason());
      for (Stage* stage : plane.binding->stages) {
        if (stage != nullptr) stage->Abort(transport_.reason());
      }
    }
  }

  // Waits until no thread runs, but at most for `poll`. Returns whether a thread still runs.
  bool WaitForEnd(MutexLock& lock, Clock::duration poll) PENSTOCK_REQUIRES(mutex_) {
    const Clock::time_point deadline = Clock::now() + poll;
    while (!running_.empty() && changed_.WaitUntil(lock, deadline)) {
    }
    return !running_.empty();
  }

  bool AnyProgress() {
    bool here = false;
    for (Rank& rank : ranks_) {
      const std::uint64_t now = rank.executor->progress();
      here = here || now != rank.seen_progress;
      rank.seen_progress = now;
    }
    if (here) control_.ReportProgress();
    return control_.TakeProgress() || here;
  }

  std::string OwnActions() const {
    std::string actions;
    for (const Rank& rank : ranks_) {
      actions += fmt::format("{}rank {} {}", actions.empty() ? "" : ", ", rank.number,
                             rank.executor->Doing());
    }
    return actions;
  }

  Standstill OwnStandstill() const PENSTOCK_REQUIRES(mutex_) {
    Standstill own;
    for (const Rank& rank : ranks_) {
      if (!running_.contains(rank.number)) continue;
      std::string& list = rank.executor->computing() ? own.computing : own.waiting;
      list += fmt::format("; rank {} {}", rank.number, rank.executor->Doing());
    }
    return own;
  }

  // Lists the ranks that compute first, because they are at fault, then the ranks that wait.
  std::string StandstillText() const PENSTOCK_REQUIRES(mutex_) {
    const Standstill all = control_.All(OwnStandstill());
    return fmt::format("no rank made progress for {} s{}{}",
                       std::chrono::duration<double>(options_.watchdog).count(), all.computing,
                       all.waiting);
  }

  const std::vector<Plane>& planes_;
  const RunOptions& options_;
  Transport& transport_;
  RunControl control_;
  std::vector<Rank> ranks_;  // of this process
  Mutex mutex_;
  CondVar changed_;
  std::set<int> running_ PENSTOCK_GUARDED_BY(mutex_);  // ranks whose threads run
};

Status CheckOptions(const Schedule& schedule, std::span<Stage* const> stages,
                    const RunOptions& options) {
  if (options.steps < 0)
    return InvalidArgument("steps is {}, but must be at least 0", options.steps);
  if (options.watchdog <= std::chrono::milliseconds(0)) {
    return InvalidArgument("watchdog is {} ms, but must be above 0", options.watchdog.count());
  }
  if (std::ssize(stages) != std::int64_t{schedule.stages()} * options.planes) {
    return InvalidArgument("{} stages were passed, but the schedule has {}{}", stages.size(),
                           schedule.stages(),
                           options.planes == 1 ? "" : fmt::format(" in {} planes", options.planes));
  }
  if (options.planes > 1 && options.transport != nullptr) {
    return InvalidArgument("{} planes need transports of their own", options.planes);
  }
  const int ranks = schedule.ranks() * options.planes;
  if (options.ranks != nullptr && options.ranks->ranks() != ranks) {
    return InvalidArgument("the processes have {} ranks, but the schedule has {}",
                           options.ranks->ranks(), ranks);
  }
  return RequireValid(schedule, "the list of actions");
}

}  // namespace

Status RunRanks(const Schedule& schedule, std::span<Stage* const> stages,
                const RunOptions& options) {
  PENSTOCK_TRY_STATUS(CheckOptions(schedule, stages, options));
  const LocalRanks ranks =
      options.ranks != nullptr ? *options.ranks : LocalRanks(schedule.ranks() * options.planes);
  const MessageMap messages(schedule);
  std::vector<Plane> planes(Index(options.planes));
  for (std::size_t plane = 0; plane < planes.size(); ++plane) {
    planes[plane].options = options;
    if (plane > 0) planes[plane].options.on_verdict = {};
    if (plane > 0) planes[plane].options.trace = nullptr;
    const auto own = stages.subspan(plane * Index(schedule.stages()), Index(schedule.stages()));
    PENSTOCK_TRY_STATUS(planes[plane].Make(schedule, own,
                                           ranks.OfPlane(options.planes, static_cast<int>(plane)),
                                           messages, DefaultTransport(ranks)));
  }
  Run run(planes, ranks);
  PENSTOCK_TRY_STATUS(run.Bind());
  return run.Execute();
}

}  // namespace penstock
