// The devices that a request has: what they are, how many, where, and how often they fail.
#pragma once

#include "cost_model/model_on_cluster.h"
#include "cost_model/request/model_request.h"

namespace penstock {

// Returns the cluster without its speeds. Errors: kInvalidArgument about the field.
Result<Cluster> ReadCluster(const ModelRequest& request);

}  // namespace penstock
