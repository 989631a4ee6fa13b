// The costs of one rank's share of a sharded vocabulary (schedule/vocabulary.h).
#pragma once

#include "cost_model/layer_work.h"
#include "cost_model/microbatch.h"
#include "model_spec/model_shape.h"

namespace penstock {

// The work of one of `ranks` equal shares of the rows of embedding and head.
struct VocabularyWork {
  Kernels embed, softmax, weight, embed_gradient;  // of EMBED, S, T and EMBED_GRAD
  double softmax_bytes = 0;                        // from S to T: fp32 logits
  double parameters = 0;
};
VocabularyWork WorkOfVocabulary(const ModelShape& shape, const Microbatch& batch, int ranks);

}  // namespace penstock
