// Vocabulary parallelism: each rank has an equal share of the rows of the embedding and of the
// head, and every microbatch has passes on every rank (Yeung, Qi, Lin and Wan, Balancing Pipeline
// Parallelism with Vocabulary Parallelism, MLSys 2025; this is their Vocab-2, with one barrier).
//
//   EMBED(r,n)       needs nothing                F(first,n)       waits for EMBED(*,n)
//   S(r,n)           waits for F(last,n)          I|B(last,n)      waits for S(*,n)
//   T(r,n)           waits for S(*,n)
//   EMBED_GRAD(r,n)  waits for I|B(first,n)
//
// The last stage ends with the final norm and broadcasts its output. S computes the rank's logits,
// their largest value, the sum of their exponentials, and the rank's part of the input gradient as
// if its rows were the whole vocabulary. From these of all ranks, each rank rescales its own (as in
// online softmax), and the last stage's rank adds the input gradients. A pass is written with the
// number of its rank's first stage.
#pragma once

#include <vector>

#include "schedule/deps.h"

namespace penstock {

// A value that vocabulary passes of all ranks produce together. Others wait for all of them.
enum class SharedValue : std::uint8_t {
  kEmbedding,  // the first stage's input: EMBED of all ranks
  kSoftmax,    // the loss and the last stage's output gradient: S of all ranks
};
inline constexpr int kSharedValues = 2;

// The first stage of each rank, by rank; -1 if a rank has none.
inline std::vector<int> VocabularyStages(const Schedule& schedule) {
  std::vector<int> stages;
  for (int rank = 0; rank < schedule.ranks(); ++rank) {
    const std::vector<int>& of_rank = schedule.placement.stages_of(rank);
    stages.push_back(of_rank.empty() ? -1 : of_rank.front());
  }
  return stages;
}

// By stage: the actions per microbatch index that add to the gradients of its weights: W or B (I,
// if it trains only adapters; none, if it is frozen), and T and EMBED_GRAD on the first stage of a
// rank.
inline std::vector<int> GradientShares(const Schedule& schedule) {
  std::vector<int> shares;
  for (int stage = 0; stage < schedule.stages(); ++stage) {
    shares.push_back(HasGradients(schedule.backward_of(stage)) ? 1 : 0);
  }
  if (!schedule.vocabulary) return shares;
  for (const int stage : VocabularyStages(schedule)) {
    if (stage >= 0) shares[static_cast<std::size_t>(stage)] += 2;
  }
  return shares;
}

// The two ends of the chain of a schedule with a sharded vocabulary.
struct VocabularyEnds {
  int first = -1, last = -1;  // stages; -1 if the vocabulary is not sharded

  static VocabularyEnds Of(const Schedule& schedule) {
    if (!schedule.vocabulary) return {};
    return {0, schedule.stages() - 1};
  }
};

// Calls on_value(Value) for the value of the first or last stage that the part waits for because
// the vocabulary is sharded, and on_shared(SharedValue) for the one of all ranks; both have the
// part's microbatch.
template <class OnValue, class OnShared>
inline void ForEachVocabularyDependency(const VocabularyEnds& ends, const Part& part,
                                        OnValue&& on_value, OnShared&& on_shared) {
  switch (part.op) {
    case Op::kForward:
      if (part.stage == ends.first) on_shared(SharedValue::kEmbedding);
      break;
    case Op::kBackwardInput:
    case Op::kBackward:
      if (part.stage == ends.last) on_shared(SharedValue::kSoftmax);
      break;
    case Op::kVocabularyInput:
      on_value(Value{ValueKind::kActivation, ends.last, part.microbatch});
      break;
    case Op::kVocabularyWeight:
      on_shared(SharedValue::kSoftmax);
      break;
    case Op::kEmbedGradient:
      on_value(Value{ValueKind::kGradient, ends.first, part.microbatch});
      break;
    default:
      break;
  }
}

}  // namespace penstock
