// Collectives: values that all hosts contribute to or agree on, over a channel of its own.
//
// Every host calls the same functions in the same order. Threads: one at a time on each host.
// Errors: the reason of an abort of the group.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/result.h"
#include "runtime/hosts/host_group.h"

namespace penstock {

class Collectives {
 public:
  // `group` may be null: one host, and no function waits. It outlives the object.
  explicit Collectives(HostGroup* group);

  int host() const { return group_ == nullptr ? 0 : group_->host(); }
  int hosts() const { return group_ == nullptr ? 1 : group_->hosts(); }
  // Host 0 writes the files that a run has one of, and decides what no rank decides.
  bool leads() const { return host() == 0; }
  HostGroup* group() const { return group_; }

  // What each host contributes, by host.
  Result<std::vector<std::string>> AllGather(std::string own);
  // The same at the leader; nothing at the others.
  Result<std::vector<std::string>> ToLeader(std::string own);
  // What the leader contributes.
  Result<std::string> FromLeader(std::string own);
  Result<double> FromLeader(double own);
  // Whether it is true on any host.
  Result<bool> Any(bool own);
  // The first host's failure, on all hosts, where there is one.
  Status All(const Status& own);

 private:
  Result<std::string> Receive(int from);

  HostGroup* group_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::deque<std::string>> received_;  // by host; guarded by mutex_
  std::unique_ptr<Channel> channel_;               // null for one host
};

}  // namespace penstock
