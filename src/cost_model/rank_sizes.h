// The sizes of a layer on one rank: the model's sizes, divided by the ranks that share the layer.
#pragma once

#include <algorithm>

#include "cost_model/microbatch.h"
#include "model_spec/model_shape.h"

namespace penstock {

struct RankSizes {
  RankSizes(const ModelShape& shape, const Microbatch& batch)
      : dim(static_cast<double>(shape.dim)),
        heads(Share(shape.heads, batch)),
        kv_heads(std::max(1.0, Share(shape.kv_heads, batch))),
        head_dim(static_cast<double>(shape.head_dim)),
        hidden(Share(shape.hidden, batch)),
        vocabulary(DividesVocabulary(shape, batch) ? Share(shape.vocabulary, batch)
                                                   : static_cast<double>(shape.vocabulary)) {}

  static double Share(std::int64_t size, const Microbatch& batch) {
    return static_cast<double>(size) / static_cast<double>(batch.tensor);
  }

  static bool DividesVocabulary(const ModelShape& shape, const Microbatch& batch) {
    return batch.profile.get().pads_vocabulary || shape.vocabulary % batch.tensor == 0;
  }

  double dim;
  double heads, kv_heads, head_dim;
  double hidden;
  double vocabulary;
};

}  // namespace penstock
