// FrameEdges: backends of c10d that send tensors of the CPU as frames of another process group. So
// C10dProcessGroup runs where torch.distributed has no group, such as in the program. Private to
// train/c10d.
#pragma once

#include <memory>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "runtime/processes/process_group.h"

namespace penstock {

class FrameInboxes;

class FrameEdges {
 public:
  // Opens one channel of the group, which must outlive the backends.
  explicit FrameEdges(ProcessGroup& processes);

  // A backend over this process's two edges with `process`; the lower process has rank 0. A send
  // copies the tensor and is complete. The wait for a receive has no timeout, and throws
  // std::runtime_error if the group has ended.
  c10::intrusive_ptr<c10d::Backend> With(int process) const;

 private:
  const std::shared_ptr<FrameInboxes> inboxes_;
};

}  // namespace penstock
