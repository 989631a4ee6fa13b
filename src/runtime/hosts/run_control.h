// RunControl: what the hosts of a run agree on while their ranks run: the step to stop after, and
// whether any rank makes progress. Where one host runs all ranks it sends nothing.
//
// Threads: any.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/hosts/host_group.h"
#include "runtime/hosts/step_gate.h"
#include "runtime/transport.h"

namespace penstock {

// What ranks do while nothing moves, as phrases: "; rank 1 runs 3F0".
struct Standstill {
  std::string computing;
  std::string waiting;
};

class RunControl {
 public:
  // `group` may be null. An abort of the group aborts the transport. All of it must outlive the
  // control.
  RunControl(HostGroup* group, const std::atomic<bool>* stop, Transport& transport);

  StepGate& gate() { return gate_; }

  // A rank of this host has made progress.
  void ReportProgress();
  // Whether another host has reported progress since the last call.
  bool TakeProgress() { return progress_.exchange(false); }

  // What this host's ranks do while nothing moves.
  void ReportStandstill(const Standstill& own);
  // With what the other hosts have reported last.
  Standstill All(const Standstill& own) const;

  // The transport is aborted: ends every wait at the gate, and the other hosts' part in the run.
  void Abort(const Error& reason);
  // All ranks of this host have ended.
  void End() { gate_.Close(); }

 private:
  enum Kind : std::int32_t { kProgress, kClosed, kComputing, kWaiting };

  void OnFrame(int from, const FrameTag& tag, const Message& message);

  StepGate gate_;
  std::atomic<bool> progress_{false};
  mutable std::mutex mutex_;
  std::vector<Standstill> others_;    // by host; guarded by mutex_
  std::unique_ptr<Channel> channel_;  // null for one host
};

}  // namespace penstock
