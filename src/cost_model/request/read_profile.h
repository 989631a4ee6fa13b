// What a request says about its implementation and the speeds of kernels and links.
#pragma once

#include "cost_model/implementation.h"
#include "cost_model/request/model_request.h"

namespace penstock {

// Errors: kInvalidArgument about the field.
Result<Profile> ReadProfile(const ModelRequest& request);

// Returns the implementation's speeds, where the request has none of its own. Requires:
// `batch.profile` and `batch.precision` are set. Errors: kInvalidArgument about the field.
Result<Speeds> ReadSpeeds(const ModelRequest& request, const Microbatch& batch);

}  // namespace penstock
