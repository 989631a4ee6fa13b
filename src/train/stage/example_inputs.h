// What stages before send a stage, as examples to capture it with. Private to train/.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "model/model.h"
#include "train/config.h"

namespace penstock {

// The stage as it is computed with: in the configuration's precision.
Result<std::shared_ptr<StageModule>> WorkingStage(const TrainConfig& config,
                                                  const LayerRange& range);

// What the last of the stages `before` sends for a microbatch of sequences of `length` tokens; the
// tokens where there is none. Found by shapes alone: allocates nothing of these stages.
Result<std::vector<at::Tensor>> ExampleInputs(const TrainConfig& config,
                                              std::span<const LayerRange> before,
                                              std::int64_t length);

}  // namespace penstock
