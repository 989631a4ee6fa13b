// The number of parameters of each part of a model. They are those of the published weights.
#pragma once

#include "model_spec/model_shape.h"

namespace penstock {

// Of one block, with its norms.
double AttentionParameters(const ModelShape& shape);
double FeedForwardParameters(const ModelShape& shape, std::int64_t layer);
// The part of these that experts have, which expert parallelism divides.
double ExpertParameters(const ModelShape& shape, std::int64_t layer);

// Of the token embedding and the learned positions.
double EmbeddingParameters(const ModelShape& shape);
// Of the last norm and the head. A tied head has none of its own.
double HeadParameters(const ModelShape& shape);

// Of the whole model, where a tied head counts once.
double ModelParameters(const ModelShape& shape);
// Those that process a token: of the experts, the ones that it chooses and the shared ones.
double ActiveParameters(const ModelShape& shape);

}  // namespace penstock
