// WeightVersions: the weights that a stage computes with, of the newest update and of earlier ones
// that microbatches in flight still read. Private to train/. Threads: as StageWeights.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "graph/capture/capture.h"

namespace penstock {

class WeightVersions {
 public:
  // `newest` is what updates change. `older` is the number of earlier versions.
  WeightVersions(std::span<const NamedTensor> newest, int older);

  const std::vector<at::Tensor>& newest() const { return newest_; }
  // The tensors that graphs are bound to: they have the memory of the version in use.
  const std::vector<at::Tensor>& in_use() const { return values_; }
  int count() const { return 1 + static_cast<int>(older_.size()); }

  // Returns the number of updates of the run so far, which is also the newest version.
  std::int64_t updates() const { return updates_; }
  void StartAt(std::int64_t updates) { updates_ = updates; }
  // Switches to a version. Requires: the version is kept.
  void Use(std::int64_t version);
  // Copies the newest version, which an update is about to change, in place of the oldest.
  void Keep();
  void CountUpdate(int by = 1) { updates_ += by; }

 private:
  std::vector<at::Tensor> values_;
  std::vector<at::Tensor> newest_;
  std::vector<std::vector<at::Tensor>> older_;  // version v is at index v % size
  int place_ = -1;                              // index in older_; -1: the newest
  std::int64_t updates_ = 0;
};

}  // namespace penstock
