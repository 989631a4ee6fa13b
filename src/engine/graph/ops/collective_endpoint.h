// What the kernels of collectives share: the groups that the calling thread has joined.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "collective/rank_group.h"

namespace penstock {

class GroupEnd;

// Returns whether a DisableCollectivesGuard of this thread exists.
bool CollectivesDisabled();

// Add and remove a group of the calling thread. Joining throws InternalError if the thread has
// already joined the group. They allocate nothing after the first calls of a thread.
void JoinGroup(int group, GroupEnd& end);
void LeaveGroup(int group);

// Returns the number of ranks of a group. The functions throw std::runtime_error for a group that
// this thread has not joined.
int RanksOfGroup(std::int64_t group);
// Starts the collective on x, which must be contiguous, and keeps both tensors until the wait.
// Returns its ticket. Fills in the input and the output of the call.
std::int64_t StartOnGroup(std::int64_t group, CollectiveCall call, const at::Tensor& x,
                          const at::Tensor& result);
// Waits for the collective and returns its result.
at::Tensor WaitOnGroup(std::int64_t group, std::int64_t ticket);

}  // namespace penstock
