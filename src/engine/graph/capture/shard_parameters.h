// Adds the collectives of sharded parameters to a captured stage.
#pragma once

#include "graph/capture/capture.h"

namespace penstock {

// Converts a joint graph of whole parameters to the joint graph of a replica with one shard of
// them, as if the code of the stage gathered its weights.
void ShardParameters(JointGraph& joint, const ParameterSharding& sharding);

// Returns the offset of a view in its root, if both start elsewhere in a larger root: `elements`
// elements of `dtype` further on.
std::int64_t MovedOffset(const TensorValue& view, c10::ScalarType dtype, std::int64_t elements);

}  // namespace penstock
