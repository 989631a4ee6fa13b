#pragma once

namespace penstock {

// Returns whether mpirun, srun or another MPI launcher has started this process, judged by the
// variables that Open MPI, PMIx and PMI set.
bool StartedByMpi();

}  // namespace penstock
