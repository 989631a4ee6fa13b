// RunSession: runs a schedule one step at a time, on threads that stay between steps.
//
// For callers that have something to do between steps. RunRanks, which runs many steps, lets a rank
// begin the next one before the others have ended theirs.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/result.h"
#include "runtime/executor/run.h"

namespace penstock {

class RunSession {
 public:
  // Starts the threads. `options` is as for RunRanks, except that `steps`, `cancel`, `stop`,
  // `rounds_run` and `queue` are not used. `schedule`, the stages, and what `options` points to
  // must outlive the object. With a group of processes, each creates its sessions in the same
  // order.
  RunSession(const Schedule& schedule, std::vector<Stage*> stages, RunOptions options);
  // Ends the threads. Requires that no step runs.
  ~RunSession();
  RunSession(const RunSession&) = delete;
  RunSession& operator=(const RunSession&) = delete;

  // Runs the next step and returns after all ranks of this process have ended it. Stages and the
  // trace may then be used until the next step. `interrupted` is called on this thread 20 times per
  // second; if it returns true, the step fails. It may be empty.
  // The watchdog watches steps, not the time between them.
  // Errors: as RunRanks; kUnavailable if another process has ended the session. After an error
  // every call fails. Threads: one at a time.
  Status Step(const std::function<bool()>& interrupted = {}) {
    Begin();
    return End(interrupted);
  }
  // Step in two parts: the caller may do other work while the ranks run. With several steps, a rank
  // begins the next one before the others have ended theirs. Every Begin is followed by an
  // End, which returns after all steps.
  void Begin(std::int64_t steps = 1);
  Status End(const std::function<bool()>& interrupted = {});

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace penstock
