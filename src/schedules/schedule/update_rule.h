// The rule of optimizer updates: clipping by the norm of all gradients, gradients that are not
// finite, whether stages wait for the norm, and what replicas shard.
#pragma once

#include <string_view>

namespace penstock {

struct UpdateRule {
  // The maximum norm of all gradients together; gradients with a larger norm are scaled down to it.
  // 0: no limit.
  double clip = 0;
  // If a gradient is not finite, skips the update of the batch; otherwise fails the run.
  bool skip_nonfinite = false;
  // Stages step as soon as they have their gradients. The verdict arrives in the next step, before
  // its backward starts. A step that the verdict changes is rolled back and made again, together
  // with the forwards after it (Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024, section 4).
  bool post_validation = false;
  // What the replicas of a stage shard (Rajbhandari et al., ZeRO, SC 2020, section 5). 0: nothing.
  // 1: the optimizer state; each replica updates a shard of the parameters and sends it to the
  // other replicas. 2: also the gradients, which REDUCE_GRAD reduces. 3: also the weights, which
  // UNSHARD gathers.
  int zero = 0;
  // The end of an error about a value that is not finite. A layer with a configuration of its own
  // names its keys here. Must outlive the rule.
  std::string_view nonfinite_remedy = "lower the learning rate, or set skip_nonfinite";

  // Whether updated shards of the parameters are sent.
  bool sends_shards() const { return zero == 1 || zero == 2; }
  // Whether REDUCE_GRAD adds the gradients of replicas.
  bool reduces() const { return zero >= 2; }
  bool needs_norm() const { return clip > 0 || skip_nonfinite; }
  bool steps_early() const { return post_validation && needs_norm(); }

  friend bool operator==(const UpdateRule&, const UpdateRule&) = default;
};

}  // namespace penstock
