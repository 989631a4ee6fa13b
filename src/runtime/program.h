// Program: what one rank executes in a step, in order, read off its lane.
//
// An overlapped pair becomes two entries, one behind the other, that run as one. SEND and RECV
// cells become nothing: which messages cross ranks follows from the dependencies (schedule/deps.h)
// and the placement, so a compute-only schedule and its lowered form are the same program. Where
// the schedule has no STEP cell at all, each of the rank's stages gets one at the end. A schedule
// of several batches is one program over all of them.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "schedule/deps.h"
#include "schedule/schedule.h"

namespace penstock {

struct ProgramEntry {
  Part part;
  int position = -1;  // of its action in the rank's lane; -1 for a STEP that the lane does not hold
  bool ends_pair = false;  // the entry before is the first part of the same pair
};
using Program = std::vector<ProgramEntry>;

// Errors: kInvalidArgument, naming the rank and the action, for a stage of another rank or a row
// that does not exist. Whether the order can be met is Validate's to say; whether a stage has what
// an op asks for, Executor::Bind's.
Result<Program> MakeProgram(const Schedule& schedule, int rank);

// Numbers every message of a step: the values that travel between stages, then what goes with an
// update (update_exchange.h). The same on every rank.
class MessageMap {
 public:
  // Keeps `schedule`, which must outlive the map.
  explicit MessageMap(const Schedule& schedule);

  int slots() const { return first_norm_ + 2 * ranks(); }
  int ranks() const { return schedule_->ranks(); }
  // Slot of a value that one stage makes for another; -1 where no other stage waits for it (the
  // output of a chain's last stage, the input gradient of its first).
  int Slot(const Value& value) const;
  // Slot of the message that a compute part waits for, and of the one that it sends; -1 for none.
  int InSlot(const Part& part) const;
  int OutSlot(const Part& part) const;

  // Slot of a stage's gradients on their way to its replica in another chain; -1 for its own.
  int GradientSlot(int stage, int to_chain) const;
  // Slot of the gradient of a parameter that stages share (Schedule::shared), from one of them to
  // another of the same chain.
  int SharedSlot(int parameter, int from_stage, int to_stage) const;
  // Slots between a rank and root(): of its norms, and of the verdict on them.
  int NormSlot(int rank) const { return first_norm_ + rank; }
  int VerdictSlot(int rank) const { return first_norm_ + ranks() + rank; }
  int root() const { return schedule_->placement.rank_of(stages_ - 1); }

  Value ValueOf(int slot) const;  // requires the slot of a value
  int from_rank(int slot) const;
  int to_rank(int slot) const;  // -1 where nobody receives
  // "activation of stage 0, microbatch 3, from rank 1"
  std::string Describe(int slot) const;

 private:
  // The gradient of a shared parameter on its way between two stages.
  struct SharedMessage {
    int parameter, from, to;
  };

  int Receiver(const Value& value) const;         // stage; -1 for none
  const SharedMessage* SharedOf(int slot) const;  // null for another slot

  const Schedule* schedule_;
  int stages_;
  int rows_;
  int first_gradient_;
  int first_shared_;
  int first_norm_;
  std::vector<SharedMessage> shared_;  // in the order of their slots
};

}  // namespace penstock
