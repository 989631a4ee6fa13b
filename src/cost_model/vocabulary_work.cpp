#include "cost_model/vocabulary_work.h"

#include "cost_model/parameters.h"
#include "cost_model/rank_sizes.h"

namespace penstock {

VocabularyWork WorkOfVocabulary(const ModelShape& shape, const Microbatch& batch, int ranks) {
  ModelShape of_rank = shape;
  of_rank.vocabulary = (shape.vocabulary + ranks - 1) / ranks;
  const Work logits = LogitsWork(of_rank, batch), embedding = EmbeddingWork(of_rank, batch);
  VocabularyWork shard;
  shard.embed = embedding.forward;
  shard.embed_gradient = embedding.backward_weight;
  shard.softmax = logits.forward;
  shard.softmax.insert(shard.softmax.end(), logits.backward_input.begin(),
                       logits.backward_input.end());
  shard.weight = logits.backward_weight;
  shard.softmax_bytes = batch.tokens() * RankSizes(of_rank, batch).vocabulary * kFp32ElementBytes;
  const double norm = static_cast<double>(shape.dim);  // on the last stage
  shard.parameters = (EmbeddingParameters(shape) + HeadParameters(shape) - norm) /
                     static_cast<double>(batch.tensor) / ranks;
  return shard;
}

}  // namespace penstock
