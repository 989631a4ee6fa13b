// LocalRanks: the process that runs each rank of a schedule, and the number of this process. By
// default one process runs all ranks.
#pragma once

#include <vector>

#include "base/result.h"

namespace penstock {

class LocalRanks {
 public:
  // One process runs all `ranks` ranks.
  explicit LocalRanks(int ranks) : LocalRanks(std::vector<int>(ranks), 0) {}
  // Each process runs about the same number of consecutive ranks. Errors: kInvalidArgument if there
  // are more processes than ranks, or if `process` is not one of them.
  static Result<LocalRanks> Split(int ranks, int processes, int process);
  // Process `process_of[r]` runs rank r. The processes are 0 to `processes` - 1. Errors:
  // kInvalidArgument if a rank names another process, or if a process has no rank.
  static Result<LocalRanks> Of(std::vector<int> process_of, int processes, int process);
  // Returns the ranks of one of several planes (RunOptions::planes), where rank r is rank
  // r * planes + plane of these. A process may run none of them.
  LocalRanks OfPlane(int planes, int plane) const;

  int process() const { return process_; }
  int ranks() const { return static_cast<int>(process_of_.size()); }  // of all processes
  int process_of(int rank) const { return process_of_[rank]; }
  bool has(int rank) const { return process_of(rank) == process_; }
  // The ranks that this process runs, in ascending order.
  const std::vector<int>& here() const { return here_; }
  bool has_all() const { return here_.size() == process_of_.size(); }

 private:
  LocalRanks(std::vector<int> process_of, int process);

  std::vector<int> process_of_;  // by rank
  int process_;
  std::vector<int> here_;
};

}  // namespace penstock
