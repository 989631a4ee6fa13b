// Groups of torch.distributed (c10d) that collectives in graphs use, and the runs that wait for
// them.
//
// A graph has the number of a group. Ranks of one process are threads, and all ranks of a group
// must start its collectives in the same order, so each local rank but the first has a clone of the
// group.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <utility>

#include "base/mutex.h"
#include "base/result.h"

namespace penstock {

// Returns the number of a group, which is above the numbers of RankGroups. Throws c10::Error if
// c10d has no group of this name.
std::int64_t NumberOfC10dGroup(const std::string& name);
// Returns the group's name. Requires: NumberOfC10dGroup returned the number.
std::string NameOfC10dGroup(std::int64_t number);
// Declares the clone of a group that a local rank uses in place of it.
void SetC10dClone(const std::string& group, int rank, const std::string& clone);

// The collectives of one run. Thread-safe.
class C10dRun {
 public:
  using OnAbort = std::function<void(const Error& reason)>;

  // c10d ends a collective after `timeout`. `on_abort` is called once, by the first Abort.
  C10dRun(std::chrono::milliseconds timeout, OnAbort on_abort)
      : timeout_(timeout), on_abort_(std::move(on_abort)) {}

  std::chrono::milliseconds timeout() const { return timeout_; }
  // Ends all waits, also later ones. The first reason wins.
  void Abort(const Error& reason);
  // Waits until the work is done. Throws std::runtime_error if it fails, or with the reason of an
  // abort.
  void Wait(const c10::intrusive_ptr<c10d::Work>& work);

 private:
  // Callbacks of works may outlive the run.
  struct State {
    Mutex mutex;
    CondVar changed;
    std::optional<Error> reason PENSTOCK_GUARDED_BY(mutex);
  };

  // Waits until `done`, but at most until `deadline`. Returns the reason of an abort, if any.
  std::optional<Error> WaitFor(const bool& done, std::chrono::steady_clock::time_point deadline);

  const std::chrono::milliseconds timeout_;
  const OnAbort on_abort_;
  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

// Makes the calling thread a rank of a run.
void JoinC10dRun(int rank, std::shared_ptr<C10dRun> run);

// The group of a number, or the calling rank's clone of it, and the run that waits for its works.
// The run is null on threads that joined none.
struct C10dMember {
  c10::intrusive_ptr<c10d::ProcessGroup> group;
  std::shared_ptr<C10dRun> run;

  static C10dMember Of(std::int64_t number);
};

}  // namespace penstock
