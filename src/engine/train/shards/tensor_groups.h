// The groups of ranks that divide the matrices of their stages (parallel.tensor), and sums over
// them apart from the stages' graphs. Private to train/.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "config/train_config.h"
#include "graph/ops/collective.h"
#include "runtime/processes/local_ranks.h"
#include "schedule/schedule.h"

namespace penstock {

// By rank of the schedule, then by plane (MeshOfPlanes). Null for ranks of other processes; empty
// with one plane.
using TensorGroups = std::vector<std::vector<std::unique_ptr<GroupEnd>>>;

// Creates the groups, whose data is on the device. Errors: as MakeRankGroups.
Result<TensorGroups> MakeTensorGroups(const Schedule& schedule, const ParallelConfig& parallel,
                                      const LocalRanks& ranks, c10::Device device);

// Returns the sum over the ranks of a group: in the order of the ranks, and the same on all.
// Requires: x is dense. Throws std::runtime_error with the error of the group.
at::Tensor SumOverGroup(GroupEnd& group, const at::Tensor& x);
// Returns the tensors of all ranks, by rank: [ranks, ..]. Requires and throws: likewise.
at::Tensor GatherOverGroup(GroupEnd& group, const at::Tensor& x);
// Replaces numbers by their sums over the ranks. The group's data is on the device.
void SumOverGroup(GroupEnd& group, c10::Device device, std::span<double> numbers);

}  // namespace penstock
