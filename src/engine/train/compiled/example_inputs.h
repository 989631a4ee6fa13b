// Example inputs to capture a stage with. Private to train/.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "config/train_config.h"
#include "model/model.h"

namespace penstock {

// Builds the stage's module in the configuration's precision.
Result<std::shared_ptr<StageModule>> WorkingStage(const TrainConfig& config,
                                                  const LayerRange& range);

// Returns zeros with the types of the tensors that a stage receives for a microbatch with sequences
// of `length` tokens. `previous` are all stages before it; if there are none, it receives tokens,
// or embedded ones if the vocabulary is sharded.
// Computes with shapes only: does not allocate the weights of these stages.
Result<std::vector<at::Tensor>> ExampleInputs(const TrainConfig& config,
                                              std::span<const LayerRange> previous,
                                              std::int64_t length);

}  // namespace penstock
