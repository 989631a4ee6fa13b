// The groups of ranks of several planes, which divide the matrices of their stages
// (parallel.tensor) or the tokens of samples (parallel.context), and sums over them apart from the
// stages' graphs. Private to train/.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "graph/ops/collective.h"
#include "runtime/processes/local_ranks.h"
#include "schedule/mesh.h"
#include "schedule/schedule.h"

namespace penstock {

// By rank of the schedule, then by plane (Planes). Null for ranks of other processes; empty if the
// axis has one part.
using PlaneGroups = std::vector<std::vector<std::unique_ptr<GroupEnd>>>;

// Creates the groups along an axis of the planes, whose data is on the device. Errors: as
// MakeRankGroups.
Result<PlaneGroups> MakePlaneGroups(const Mesh& planes, Axis axis, const Schedule& schedule,
                                    const LocalRanks& ranks, c10::Device device);

// Returns the sum over the ranks of a group: in the order of the ranks, and the same on all.
// Requires: x is dense. Throws std::runtime_error with the error of the group.
at::Tensor SumOverGroup(GroupEnd& group, const at::Tensor& x);
// Replaces x by the sum.
void SumInPlace(GroupEnd& group, const at::Tensor& x);
// Replaces numbers by their sums over the ranks. The group's data is on the device.
void SumOverGroup(GroupEnd& group, c10::Device device, std::span<double> numbers);

}  // namespace penstock
