// The groups of ranks with the same stages in different planes, which divide matrices
// (parallel.tensor) or the tokens of samples (parallel.context), and collectives of them apart from
// the stages' graphs. Private to train/.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/link_speed.h"
#include "base/result.h"
#include "graph/ops/collective.h"
#include "runtime/processes/local_ranks.h"
#include "runtime/processes/process_group.h"
#include "schedule/mesh.h"

namespace penstock {

// By rank of the mesh (MeshOfPlanes). Null for ranks of other processes; empty if the axis has one
// rank.
using PlaneGroups = std::vector<std::unique_ptr<GroupEnd>>;

// Creates the groups of the ranks of a mesh along an axis, whose data is on the device. `ranks` has
// the processes of the mesh's ranks. Every process calls it at the same place of its start.
// `processes` is null for a single process, and must outlive the groups. `link` and errors: as
// MakeRankGroups.
Result<PlaneGroups> MakePlaneGroups(const Mesh& mesh, Axis axis, const LocalRanks& ranks,
                                    ProcessGroup* processes, c10::Device device,
                                    std::optional<LinkSpeed> link = {});

// Returns the sum over the ranks of a group: in the order of the ranks, and the same on all.
// Requires: x is dense. Throws std::runtime_error with the error of the group.
at::Tensor SumOverGroup(GroupEnd& group, const at::Tensor& x);
// Replaces x by the sum.
void SumInPlace(GroupEnd& group, const at::Tensor& x);
// Starts to gather the tensors of all ranks, which have one shape, along a new first dimension.
// GroupEnd::Wait returns the result. Throws as SumOverGroup.
RankGroup::Ticket StartGather(GroupEnd& group, const at::Tensor& x);
// Replaces numbers by their sums over the ranks. The group's data is on the device.
void SumOverGroup(GroupEnd& group, c10::Device device, std::span<double> numbers);

}  // namespace penstock
