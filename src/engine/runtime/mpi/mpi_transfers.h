// MpiTransfers: memory of devices that MPI sends and receives itself. Private to runtime/mpi.
#pragma once

#include <mpi.h>

#include <functional>
#include <memory>
#include <span>

#include "base/result.h"
#include "runtime/mpi/call_watch.h"
#include "runtime/processes/direct_transfers.h"

namespace penstock {

// Returns an error if MPI does not say that it accesses memory of devices.
Status CheckAccessesDevices();

class MpiTransfers final : public DirectTransfers {
 public:
  // What transfers use of the process group that owns them.
  struct Group {
    MPI_Comm communicator = MPI_COMM_NULL;  // whose ranks are the processes
    int tag = 0;                            // of transfers alone
    CallWatch& watch;
    // The number of transfers that need the group's calls of MPI to make progress has changed.
    std::function<void(int change)> add_pending;
    std::function<bool(int process)> has_ended;
  };

  explicit MpiTransfers(Group group) : group_(std::move(group)) {}

  std::unique_ptr<Transfer> Send(int to, std::span<const std::byte> data) override;
  std::unique_ptr<Transfer> Receive(int from, std::span<std::byte> data) override;

 private:
  const Group group_;
};

}  // namespace penstock
