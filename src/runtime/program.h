// Program: what one rank executes in a step, in order, read off its lane.
//
// An overlapped pair becomes two entries, one behind the other, that run as one. SEND and RECV
// cells become nothing: which messages cross ranks follows from the dependencies (schedule/deps.h)
// and the placement, so a compute-only schedule and its lowered form are the same program. Where
// the schedule has no STEP cell at all, each of the rank's stages gets one at the end. A schedule
// of several batches is one program over all of them.
#pragma once

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

// Numbers every message of a step: slot <-> the value that travels. The same on every rank.
class MessageMap {
 public:
  // Keeps `schedule`, which must outlive the map.
  explicit MessageMap(const Schedule& schedule);

  int slots() const { return 2 * stages_ * rows_; }
  int ranks() const { return schedule_->ranks(); }
  // Slot of a value that one stage makes for another; -1 where no other stage waits for it (the
  // output of a chain's last stage, the input gradient of its first).
  int Slot(const Value& value) const;
  // Slot of the message that a compute part waits for, and of the one that it sends; -1 for none.
  int InSlot(const Part& part) const;
  int OutSlot(const Part& part) const;

  Value ValueOf(int slot) const;
  int from_rank(int slot) const;
  int to_rank(int slot) const;  // -1 where nobody receives

 private:
  int Receiver(const Value& value) const;  // stage; -1 for none

  const Schedule* schedule_;
  int stages_;
  int rows_;
};

}  // namespace penstock
