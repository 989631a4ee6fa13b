// A backend of c10d for tensors of a device, by what moves the device's memory between processes
// itself. Private to train/c10d.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "runtime/processes/direct_transfers.h"

namespace penstock {

// Returns this process's end of the edges to and from another one, as a backend of these two, of
// which this one has `rank`. The host waits, on the calling thread, until the thread's stream has
// computed what is sent, or used before what is received into; and waits for transfers in
// Work::wait. Tensors must be contiguous. `transfers` must outlive the backend.
c10::intrusive_ptr<c10d::Backend> MakeDirectBackend(DirectTransfers& transfers, int other,
                                                    int rank);

}  // namespace penstock
