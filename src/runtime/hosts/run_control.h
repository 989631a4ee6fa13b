// RunControl: agreement between the hosts of a run while their ranks run, on the step to stop after
// and on whether any rank makes progress. With one host, it sends nothing. Thread-safe.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "runtime/hosts/host_group.h"
#include "runtime/hosts/step_gate.h"
#include "runtime/transport.h"

namespace penstock {

// The state of ranks that make no progress, as phrases: "; rank 1 runs 3F0".
struct Standstill {
  std::string computing;
  std::string waiting;
};

class RunControl {
 public:
  // `group` may be null, for one host. An abort of the group aborts the transport. The arguments
  // must outlive the object.
  RunControl(HostGroup* group, const std::atomic<bool>* stop, Transport& transport);

  StepGate& gate() { return gate_; }

  // Notifies the other hosts that a rank of this host has made progress.
  void ReportProgress();
  // Returns whether another host has reported progress since the last call.
  bool TakeProgress() { return progress_.exchange(false); }

  // Sends the state of this host's ranks to the other hosts.
  void ReportStandstill(const Standstill& own);
  // Returns the state of this host's ranks and the last that the other hosts have reported.
  Standstill All(const Standstill& own) const;

  // Sends what this host's ranks are doing to the host that reports it if this host is lost: the
  // leader, or host 1 for the leader itself.
  void ReportActions(const std::string& own);

  // Ends every wait at the gate and aborts the other hosts. Called after the transport was aborted.
  void Abort(const Error& reason);
  // Called after all ranks of this host have ended.
  void End() { gate_.Close(); }

 private:
  enum Kind : std::int32_t { kProgress, kClosed, kComputing, kWaiting, kActions };

  void OnFrame(int from, const FrameTag& tag, const Message& message);

  StepGate gate_;
  std::atomic<bool> progress_{false};
  mutable Mutex mutex_;
  std::vector<Standstill> others_ PENSTOCK_GUARDED_BY(mutex_);  // by host
  std::unique_ptr<Channel> channel_;                            // null for one host
};

}  // namespace penstock
