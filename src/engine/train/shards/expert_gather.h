// ExpertGather: gathers the experts of all ranks of a group, between runs. Private to train/.
#pragma once

#include <span>
#include <vector>

#include "graph/capture/capture.h"
#include "graph/ops/collective.h"

namespace penstock {

class ExpertGather {
 public:
  // Starts to gather tensors whose first experts are this rank's. All ranks of the group do so for
  // the same tensors in the same order. Throws std::runtime_error if the group has failed.
  void Start(GroupEnd& group, std::span<const NamedTensor> own);
  // Waits. Returns the tensors with the experts of all ranks.
  std::vector<NamedTensor> Finish();

 private:
  struct Tensor {
    std::string name;
    RankGroup::Ticket ticket = 0;
  };
  GroupEnd* group_ = nullptr;
  std::vector<Tensor> tensors_;
};

}  // namespace penstock
