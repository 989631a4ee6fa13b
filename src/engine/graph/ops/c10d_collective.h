// Collectives over groups of torch.distributed (c10d) in a graph.
//
//   penstock::c10d_all_reduce(Tensor x, str op, int group) -> Tensor
//   penstock::c10d_all_gather(Tensor x, int ranks, int group) -> Tensor
//   penstock::c10d_reduce_scatter(Tensor x, str op, int ranks, int group) -> Tensor
//   penstock::c10d_all_to_all(Tensor x, int[] received, int[] sent, int group) -> Tensor
//   penstock::c10d_broadcast(Tensor x, int source, int group) -> Tensor
//
// The arguments are those of torch's _c10d_functional ops, in whose place a capture records these
// nodes. `op` is "sum", "avg", "min" or "max", `source` a rank of the group, and `group` a number
// (c10d_groups.h). Each op has the forms NAME_start and NAME_wait (collective.h). Under a
// DisableCollectivesGuard they return zeros. Autograd does not see them: torch's derivatives have
// run above.
//
// Threads: a rank of a run calls them (JoinC10dRun). Errors: std::runtime_error.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <string>

namespace penstock {

// Adds numbers over the ranks of a group, on the host.
void SumOverC10dGroup(std::int64_t group, std::span<double> numbers);
// Replaces a tensor by its all-reduce over a group. `op` is as above.
void AllReduceOverC10dGroup(std::int64_t group, const std::string& op, const at::Tensor& tensor);

}  // namespace penstock
