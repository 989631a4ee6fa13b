// MeshRun: what the run of a pipeline has in common with the runs of the other planes of a mesh. A
// plane is a pipeline of its own. Collectives of the stages connect planes, and the failure of one
// ends all of them.
//
// Thread-safe.
#pragma once

#include <chrono>
#include <memory>

#include "graph/ops/c10d_groups.h"
#include "runtime/processes/process_group.h"

namespace penstock::python {

class MeshRun {
 public:
  // `everyone` has the processes of all planes, `plane` the ones of this plane; null for a single
  // process. c10d ends collectives that take longer than `timeout`. Every process creates it at the
  // same place among its channels.
  MeshRun(std::shared_ptr<ProcessGroup> everyone, std::shared_ptr<ProcessGroup> plane,
          std::chrono::milliseconds timeout);

  // Ends with the run, and ends the runs of all planes if it is aborted.
  const std::shared_ptr<C10dRun>& collectives() const { return collectives_; }
  // Ends the runs of all planes.
  void Abort(const Error& reason) { collectives_->Abort(reason); }
  // Returns the reason if a plane has failed.
  Status status() const;

 private:
  const std::shared_ptr<ProcessGroup> everyone_, plane_;
  const std::shared_ptr<C10dRun> collectives_;
  std::unique_ptr<Channel> channel_;  // last: its handlers use the others
};

}  // namespace penstock::python
