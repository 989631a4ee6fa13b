#include "cost_model/fsdp.h"

namespace penstock {

ShardCounts ShardCountsOf(const ModelOnCluster& model, bool has_pipeline) {
  const Implementation& implementation = model.batch.profile.get();
  ShardCounts counts;
  counts.holds_gradients = implementation.is_fsdp && has_pipeline && model.zero > 0;
  const bool reshards = model.zero == 3;
  const bool is_once = !reshards && (has_pipeline || model.zero < 2 || !implementation.is_fsdp);
  if (implementation.shards_exposed == 0 || is_once) return counts;
  counts.forward_gathers = 1;
  counts.backward_gathers = reshards ? 1 : 0;
  counts.backward_sums = counts.holds_gradients ? 0 : 1;
  counts.step_gathers = 0;
  counts.step_sums = counts.holds_gradients ? 1 : 0;
  return counts;
}

}  // namespace penstock
