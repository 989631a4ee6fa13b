// The program penstock-engine, which has the commands that need libtorch.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace penstock {

// Returns this process's rank in the MPI job that mpirun, srun or another MPI launcher has started,
// judged by the variables that Open MPI, PMIx and PMI set. Empty if there is none.
std::optional<int> RankInMpiJob();

// Replaces this process by penstock-engine, from the same folder and with these arguments; the
// first is the command. Returns only if there is no such program.
Result<int> BecomeEngine(std::vector<std::string> words);

}  // namespace penstock
