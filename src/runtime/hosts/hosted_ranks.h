// HostedRanks: the host that runs each rank of a schedule, and the number of this host.
//
// A host is a process that runs some of the ranks; by default one process runs all of them.
#pragma once

#include <vector>

#include "base/result.h"

namespace penstock {

class HostedRanks {
 public:
  // One host runs all `ranks` ranks.
  explicit HostedRanks(int ranks) : HostedRanks(std::vector<int>(ranks), 0) {}
  // Each host runs about the same number of consecutive ranks. Errors: kInvalidArgument if there
  // are more hosts than ranks, or if `host` is not one of them.
  static Result<HostedRanks> Split(int ranks, int hosts, int host);
  // Host `host_of[r]` runs rank r. The hosts are 0 to `hosts` - 1. Errors: kInvalidArgument if a
  // rank names another host, or if a host has no rank.
  static Result<HostedRanks> Of(std::vector<int> host_of, int hosts, int host);

  int host() const { return host_; }
  int ranks() const { return static_cast<int>(host_of_.size()); }  // of all hosts
  int host_of(int rank) const { return host_of_[rank]; }
  bool has(int rank) const { return host_of(rank) == host_; }
  // The ranks that this host runs, in ascending order.
  const std::vector<int>& here() const { return here_; }
  bool has_all() const { return here_.size() == host_of_.size(); }

 private:
  HostedRanks(std::vector<int> host_of, int host);

  std::vector<int> host_of_;  // by rank
  int host_;
  std::vector<int> here_;
};

}  // namespace penstock
