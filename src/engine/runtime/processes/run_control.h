// RunControl: agreement between the processes of a run while their ranks run, on the step to stop
// after and on whether any rank makes progress. With one process, it sends nothing. Thread-safe.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "runtime/processes/process_group.h"
#include "runtime/processes/step_gate.h"
#include "runtime/transport.h"

namespace penstock {

// The state of ranks that make no progress, as phrases: "; rank 1 runs 3F0".
struct Standstill {
  std::string computing;
  std::string waiting;
};

class RunControl {
 public:
  // `group` may be null, for one process. An abort of the group aborts the transport. The arguments
  // must outlive the object.
  RunControl(ProcessGroup* group, const std::atomic<bool>* stop, Transport& transport);

  StepGate& gate() { return gate_; }

  // Notifies the other processes that a rank of this process has made progress.
  void ReportProgress();
  // Returns whether another process has reported progress since the last call.
  bool TakeProgress() { return progress_.exchange(false); }

  // Sends the state of this process's ranks to the other processes.
  void ReportStandstill(const Standstill& own);
  // Returns the state of this process's ranks and the last that the other processes have reported.
  Standstill All(const Standstill& own) const;

  // Sends what this process's ranks are doing to the process that reports it if this process is
  // lost: the leader, or process 1 for the leader itself.
  void ReportActions(const std::string& own);

  // Ends every wait at the gate and aborts the other processes. Called after the transport was
  // aborted.
  void Abort(const Error& reason);
  // Called after all ranks of this process have ended.
  void End() { gate_.Close(); }

 private:
  enum Kind : std::int32_t { kProgress, kClosed, kComputing, kWaiting, kActions };

  void OnFrame(int from, const FrameTag& tag, const Message& message);

  StepGate gate_;
  std::atomic<bool> progress_{false};
  mutable Mutex mutex_;
  std::vector<Standstill> others_ PENSTOCK_GUARDED_BY(mutex_);  // by process
  std::unique_ptr<Channel> channel_;                            // null for one process
};

}  // namespace penstock
