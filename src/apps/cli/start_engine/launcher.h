#pragma once

#include <optional>

namespace penstock {

// Returns this process's rank in the MPI job that mpirun, srun or another MPI launcher has started,
// judged by the variables that Open MPI, PMIx and PMI set. Empty if there is none.
std::optional<int> RankInMpiJob();

}  // namespace penstock
