// Jobs of one machine, before MPI is initialized.
#pragma once

namespace penstock {

// Returns whether all processes of the job are on this machine, judged by the variables that Open
// MPI's mpirun and Slurm set. A process that no launcher has started is alone. False if unknown.
bool IsJobOfOneMachine();

// Has Open MPI connect processes by shared memory only, so that they listen at no port, where a
// stranger's bytes can stop them. Variables that are set remain.
void UseSharedMemoryOnly();

// Returns the rank that the launcher has given this process, before MPI is initialized; 0 if it is
// unknown.
int LaunchedRank();

}  // namespace penstock
