// A c10d backend whose device tensors move by DirectTransfers. Private to train/c10d.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "runtime/processes/direct_transfers.h"

namespace penstock {

// Returns a backend over this process's two edges with process `other`; this process has `rank` in
// it. The host waits, on the calling thread, until the thread's stream has computed what is sent,
// or used before what is received into; and waits for transfers in Work::wait. Tensors must be
// contiguous. `transfers` must outlive the backend.
c10::intrusive_ptr<c10d::Backend> MakeDirectBackend(DirectTransfers& transfers, int other,
                                                    int rank);

}  // namespace penstock
