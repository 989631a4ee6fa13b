// The number of parameters of each part of a model, as in the published weights.
#pragma once

#include "model_spec/model_shape.h"

namespace penstock {

// The parameters of one block, with its norms.
double AttentionParameters(const ModelShape& shape);
double FeedForwardParameters(const ModelShape& shape, std::int64_t layer);
// The experts' part of FeedForwardParameters, which expert parallelism divides.
double ExpertParameters(const ModelShape& shape, std::int64_t layer);

double MambaParameters(const ModelShape& shape);
double DeltaParameters(const ModelShape& shape);
// The parameters of a layer of any kind.
double LayerParameters(const ModelShape& shape, std::int64_t layer);
// What a layer that predicts a further token has in addition to its block: norms and a projection.
double PredictorParameters(const ModelShape& shape);

// The parameters of the token embedding and the learned positions.
double EmbeddingParameters(const ModelShape& shape);
// The parameters of the last norm and the head. A tied head has none of its own.
double HeadParameters(const ModelShape& shape);

// The parameters of the whole model, where a tied head counts once.
double ModelParameters(const ModelShape& shape);

}  // namespace penstock
