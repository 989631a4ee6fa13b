// VocabularyShard: the executor's interface to one rank's share of a vocabulary that is sharded
// over the ranks (schedule/vocabulary.h). Uses no tensor type, as stage.h.
//
// The passes run as actions of the rank's first stage. What they exchange:
//
//   kEmbedding  EMBED of every rank              -> F of the first stage
//   kHidden     F of the last stage              -> S of every rank
//   kSoftmax    S of every rank                  -> T of every rank, I or B of the last stage
//   kGradient   I or B of the first stage        -> EMBED_GRAD of every rank
//
// Threads: the rank's. Methods throw to fail the run.
#pragma once

#include "runtime/message.h"
#include "runtime/program.h"
#include "schedule/action.h"

namespace penstock {

class VocabularyShard {
 public:
  virtual ~VocabularyShard() = default;

  // Takes what another rank has sent. Of the own rank, takes the outputs of the last stage's F
  // (kHidden) and of the first stage's I or B (kGradient); its passes keep theirs.
  virtual void Take(VocabularyValue value, int from, int microbatch, Message message) = 0;
  // Returns the message to another rank. Called once per rank that receives one.
  virtual Message Share(VocabularyValue value, int to, int microbatch) = 0;
  // Returns the input of the first stage's F (the sum of the embeddings of all ranks), or of the
  // last stage's I or B (the gradient of its output). Requires: the values of all ranks.
  virtual Message InputOf(Op op, int microbatch) = 0;
};

}  // namespace penstock
