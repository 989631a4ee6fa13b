// HeldOutLoss: the held-out loss of a model in training, between steps and at the end.
#pragma once

#include <cstdint>
#include <functional>

#include "train/evaluation/distributed_model.h"

namespace penstock {

// Computes with the modules that train, so there is no second copy of the weights. They are in
// evaluation mode and without random numbers, so training continues as if nothing had happened.
class HeldOutLoss {
 public:
  struct Parts {
    DistributedModel& model;
    TokenSpan text;
    int threads = 1;  // that this process may use
    // Called before and after an evaluation between steps, for weights that are in shards.
    std::function<void()> gather, release;
  };

  // What `parts` refers to must outlive the object.
  explicit HeldOutLoss(Parts parts) : parts_(std::move(parts)) {}

  // Returns the loss after `steps` steps in nats per token, on all processes, as EvaluateText.
  // Called on all processes while no rank runs. Meaningless after a stop.
  double After(std::int64_t steps);
  // Computes the loss after the last step. Requires: the weights are gathered.
  double AfterLast(std::int64_t steps);

 private:
  Parts parts_;
  std::int64_t steps_ = -1;  // of the last evaluation
  double loss_ = 0;
};

}  // namespace penstock
