// FrameStores: stores of c10d by which the backends of two processes find each other (the unique
// ids of NCCL), over frames of a process group that connects them already. No port is opened for
// them. Private to train/c10d.
#pragma once

#include <memory>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <vector>

#include "runtime/processes/process_group.h"

namespace penstock {

class FrameStore;

class FrameStores {
 public:
  // Opens one channel of the group, which must outlive the object and its stores.
  explicit FrameStores(ProcessGroup& processes);
  ~FrameStores();
  FrameStores(const FrameStores&) = delete;
  FrameStores& operator=(const FrameStores&) = delete;

  // Returns what this process shares with another one. Either sees what the other one has set, a
  // little later; what both have added is the sum. Waits end with the group.
  c10::intrusive_ptr<c10d::Store> With(int process) const;

 private:
  std::vector<c10::intrusive_ptr<FrameStore>> stores_;  // by process; null for this one
  std::unique_ptr<Channel> channel_;                    // last, because its handlers use the stores
};

}  // namespace penstock
