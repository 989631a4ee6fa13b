// Collectives: exchanges of small values between all hosts of a run.
//
// Every host calls the same functions in the same order. Only one thread of a host may call them at
// a time. Errors: the reason of the abort, if the group is aborted.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "base/result.h"
#include "runtime/hosts/host_group.h"

namespace penstock {

// The steady clock of a host relative to the leader's.
struct ClockOffset {
  std::int64_t ns = 0;     // to be added to a time of this host
  std::int64_t error = 0;  // maximum of its error
};

class Collectives {
 public:
  // `group` must outlive the object. If it is null there is one host, and no function waits.
  explicit Collectives(HostGroup* group);

  int host() const { return group_ == nullptr ? 0 : group_->host(); }
  int hosts() const { return group_ == nullptr ? 1 : group_->hosts(); }
  // Returns whether this is host 0, which writes the files of the run that no rank owns.
  bool leads() const { return host() == 0; }
  HostGroup* group() const { return group_; }

  // Returns the values of all hosts, by host.
  Result<std::vector<std::string>> AllGather(std::string own);
  // Returns the values of all hosts at the leader, and an empty vector elsewhere.
  Result<std::vector<std::string>> ToLeader(std::string own);
  // Returns the leader's value.
  Result<std::string> FromLeader(std::string own);
  Result<double> FromLeader(double own);
  // Returns whether `own` is true on any host.
  Result<bool> Any(bool own);
  // Returns the error of the lowest-numbered host that has one, with its name, on every host.
  Status All(const Status& own);
  // Measures the offset of this host's clock by the quickest of several round trips. The machines'
  // clocks may drift apart later.
  Result<ClockOffset> MeasureClock();

 private:
  Result<std::string> Receive(int from);

  HostGroup* group_;
  Mutex mutex_;
  CondVar changed_;
  std::vector<std::deque<std::string>> received_ PENSTOCK_GUARDED_BY(mutex_);  // by host
  std::unique_ptr<Channel> channel_;                                           // null for one host
};

}  // namespace penstock
