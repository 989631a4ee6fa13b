// Proves a schedule sound, or reports its faults, in time and memory linear in the actions.
//
// Sound means: each (stage, microbatch index) runs F once and either B once or I and W once each,
// on the stage's rank and in an order that satisfies the dependencies; every SEND has its RECV and
// vice versa; there is no deadlock under the runtime's communication rule (a receive is only posted
// and its consumer waits; a send never waits, but a WAIT_SEND waits until the receive is posted);
// if any SEND or REDUCE_GRAD has a WAIT, each has one after it; weight shards, offloads,
// recomputes and optimizer steps are where they are allowed; if any stage reduces its gradients or
// steps, all do; memory never goes below zero. A stage may stay unsharded at the end.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "schedule/schedule.h"

namespace penstock {

// The place of an action in its rank's lane, from 0.
struct LanePosition {
  int rank = -1;
  int position = -1;
};

struct Fault {
  int rank = -1;       // -1 if the fault belongs to no rank
  int position = -1;   // of the action in its rank's lane, from 0; -1 if the action is missing
  std::string action;  // its text; for a missing action, what is missing
  std::string reason;  // one line: what is wrong, or what it waits for
  std::vector<LanePosition> cycle =
      {};  // of a deadlock: the actions that wait for each other, from this one
};

struct ValidateOptions {
  int max_faults = 50;
};

// Returns the faults; none if the schedule is valid. Never throws, whatever bytes the lanes hold.
std::vector<Fault> Validate(const Schedule& schedule, const ValidateOptions& options = {});

// Refuses a schedule that is not valid; the error names the first fault. `label` is the subject of
// the sentence: "mine.csv".
Status RequireValid(const Schedule& schedule, std::string_view label);

// Returns the fault in one line: "rank 1, position 3, 3B0: ...".
std::string Line(const Fault& fault);

// Returns several lines: the fault and the marked action with its neighbors, on each rank of a
// deadlock's cycle. For a missing action, shows the neighbors of the nearest one of its stage and
// microbatch.
std::string Describe(const Schedule& schedule, const Fault& fault);

}  // namespace penstock
