// Collectives: exchanges of small values between all processes of a run.
//
// Every process calls the same functions in the same order. Only one thread of a process may call
// them at a time. Errors: the reason of the abort, if the group is aborted.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "base/result.h"
#include "runtime/processes/process_group.h"

namespace penstock {

// The steady clock of a process relative to the leader's.
struct ClockOffset {
  std::int64_t ns = 0;     // to be added to a time of this process
  std::int64_t error = 0;  // maximum of its error
};

class Collectives {
 public:
  // `group` must outlive the object. If it is null there is one process, and no function waits.
  explicit Collectives(ProcessGroup* group);

  int process() const { return group_ == nullptr ? 0 : group_->process(); }
  int processes() const { return group_ == nullptr ? 1 : group_->processes(); }
  // Returns whether this is process 0, which writes the files of the run that no rank owns.
  bool leads() const { return process() == 0; }
  ProcessGroup* group() const { return group_; }

  // Returns the values of all processes, by process.
  Result<std::vector<std::string>> AllGather(std::string own);
  // Returns the values of all processes at the leader, and an empty vector elsewhere.
  Result<std::vector<std::string>> ToLeader(std::string own);
  // Returns the leader's value.
  Result<std::string> FromLeader(std::string own);
  Result<double> FromLeader(double own);
  // Returns whether `own` is true on any process.
  Result<bool> Any(bool own);
  // Returns the error of the lowest-numbered process that has one, with its name, on every process.
  Status All(const Status& own);
  // Measures the offset of this process's clock by the quickest of several round trips. The
  // machines' clocks may drift apart later.
  Result<ClockOffset> MeasureClock();

 private:
  Result<std::string> Receive(int from);

  ProcessGroup* group_;
  Mutex mutex_;
  CondVar changed_;
  std::vector<std::deque<std::string>> received_ PENSTOCK_GUARDED_BY(mutex_);  // by process
  std::unique_ptr<Channel> channel_;  // null for one process
};

// Returns the value if all processes have one, otherwise the error of one of them with its name.
template <class T>
Result<T> OnAll(Collectives& processes, Result<T> own) {
  PENSTOCK_TRY_STATUS(processes.All(own ? Status() : tl::unexpected(own.error())));
  return own;
}

}  // namespace penstock
