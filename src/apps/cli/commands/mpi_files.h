// What Open MPI's mpirun leaves on this machine if it is killed.
#pragma once

#include <ctime>

namespace penstock {

// Removes the files of this user's mpirun sessions that have begun since `start` and whose mpirun
// has ended without removing them: in the temporary folder, and the shared memory of their
// processes. Requires: none of these processes is left.
void RemoveMpiFiles(std::time_t start);

}  // namespace penstock
