#pragma once

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

namespace penstock {

// Collectives of c10d that have other names since torch 2.13, which deprecates the earlier ones.
// Group is c10d::ProcessGroup: a parameter, so that only the names of the torch at hand are looked
// up.

template <typename Group>
c10::intrusive_ptr<c10d::Work> AllGatherSingle(Group& group, at::Tensor& result, at::Tensor& x,
                                               const c10d::AllgatherOptions& options) {
  if constexpr (requires { group.all_gather_single(result, x, options); }) {
    return group.all_gather_single(result, x, options);
  } else {
    return group._allgather_base(result, x, options);
  }
}

template <typename Group>
c10::intrusive_ptr<c10d::Work> ReduceScatterSingle(Group& group, at::Tensor& result, at::Tensor& x,
                                                   const c10d::ReduceScatterOptions& options) {
  if constexpr (requires { group.reduce_scatter_single(result, x, options); }) {
    return group.reduce_scatter_single(result, x, options);
  } else {
    return group._reduce_scatter_base(result, x, options);
  }
}

template <typename Group>
c10::intrusive_ptr<c10d::Work> AllToAllSingle(Group& group, at::Tensor& result, at::Tensor& x,
                                              std::vector<std::int64_t>& received,
                                              std::vector<std::int64_t>& sent,
                                              const c10d::AllToAllOptions& options) {
  if constexpr (requires { group.all_to_all_single(result, x, received, sent, options); }) {
    return group.all_to_all_single(result, x, received, sent, options);
  } else {
    return group.alltoall_base(result, x, received, sent, options);
  }
}

}  // namespace penstock
