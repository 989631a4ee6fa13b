// Program: the actions that one rank executes in a step, in order, derived from its lane.
//
// An overlapped pair becomes two consecutive entries that run as one. SEND and RECV actions are
// dropped: the dependencies (schedule/deps.h) and the placement determine which messages cross
// ranks, so a compute-only schedule and its lowered form are the same program. If the schedule has
// no STEP at all, each of the rank's stages gets one at the end. So does a frozen stage always: its
// rank then takes part in the update of the others. On a stage without W, I runs as B. A schedule
// of several batches is one program over all of them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "schedule/deps.h"
#include "schedule/schedule.h"

namespace penstock {

struct ProgramEntry {
  Part part;
  int position = -1;  // of its action in the rank's lane; -1 for a STEP that is not in the lane
  bool ends_pair = false;  // the previous entry is the first part of the same pair
};
using Program = std::vector<ProgramEntry>;

// What ranks exchange for a sharded vocabulary (vocabulary_shard.h).
enum class VocabularyValue : std::uint8_t { kEmbedding, kHidden, kSoftmax, kGradient };

// Errors: kInvalidArgument, naming the rank and the action, for a stage of another rank or a
// microbatch that does not exist. Validate checks whether the order is feasible; Executor::Bind
// checks whether a stage supports an op.
Result<Program> MakeProgram(const Schedule& schedule, int rank);

// Numbers every message of a step: the values that travel between stages, then the values of an
// update (update_exchange.h). The numbers are the same on every rank.
class MessageMap {
 public:
  // `schedule` must outlive the map.
  explicit MessageMap(const Schedule& schedule);

  int slots() const { return first_norm_ + 2 * ranks(); }
  int ranks() const { return schedule_->ranks(); }
  // Returns the slot of a value that one stage produces for another, or -1 if no other stage reads
  // it (the output of a chain's last stage, the input gradient of its first stage, or after stages
  // without a backward).
  int Slot(const Value& value) const;
  // Return the slot of the message that a compute part waits for, and of the one that it sends; -1
  // for none.
  int InSlot(const Part& part) const;
  int OutSlot(const Part& part) const;

  // Returns the slot of a stage's gradients for its replica in another chain; -1 for its own chain.
  int GradientSlot(int stage, int to_chain) const;
  // Returns the slot of a stage's shard of the parameters.
  int ShardSlot(int stage, int to_chain) const;
  // Returns the slot of the gradient of a parameter that stages share (Schedule::shared), from one
  // of them to another of the same chain.
  int SharedSlot(int parameter, int from_stage, int to_stage) const;
  // Returns the slot of a value of a sharded vocabulary from one rank to another; both may be any
  // ranks for kSoftmax; for other values, one has the first or the last stage.
  int VocabularySlot(VocabularyValue value, int from, int to, int microbatch) const;
  // Slots between a rank and root(): for its norms, and for the verdict on them.
  int NormSlot(int rank) const { return first_norm_ + rank; }
  int VerdictSlot(int rank) const { return first_norm_ + ranks() + rank; }
  int root() const { return schedule_->placement.rank_of(stages_ - 1); }

  Value ValueOf(int slot) const;  // requires the slot of a value
  int from_rank(int slot) const;
  int to_rank(int slot) const;  // -1 if no rank receives it
  // "activation of stage 0, microbatch 3, from rank 1"
  std::string Describe(int slot) const;

 private:
  // The gradient of a shared parameter, from one stage to another.
  struct SharedMessage {
    int parameter, from, to;
  };

  int Receiver(const Value& value) const;  // stage; -1 for none
  // A message from a stage to its replica in another chain, by a slot from first_gradient_ on.
  struct ReplicaMessage {
    int stage, to_chain;
    bool has_gradients;  // else parameters
  };
  ReplicaMessage ReplicaMessageOf(int slot) const;
  const SharedMessage* SharedOf(int slot) const;  // null for another slot
  // A value of a sharded vocabulary, by a slot from first_vocabulary_ on.
  struct VocabularyMessage {
    VocabularyValue value;
    int from, to, microbatch;
  };
  bool IsVocabularySlot(int slot) const { return slot >= first_vocabulary_ && slot < first_norm_; }
  VocabularyMessage VocabularyOf(int slot) const;
  int first_rank() const { return schedule_->placement.rank_of(0); }

  const Schedule* schedule_;
  int stages_;
  int microbatches_;
  int first_gradient_;
  int first_shared_;
  int first_vocabulary_;
  int first_norm_;
  std::vector<SharedMessage> shared_;  // in the order of their slots
};

}  // namespace penstock
