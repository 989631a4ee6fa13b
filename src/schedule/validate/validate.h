// Proves a schedule sound or names its faults, in time and memory linear in the actions.
//
// Sound: each (stage, row) runs F once and either B once or I and W once each, on the stage's rank
// and in an order that can be met; every SEND has its RECV and the other way round; no deadlock
// under the runtime's communication rule (a receive is posted, its consumer waits; a send never
// waits); weight shards, offloads, recomputes and optimizer steps are where they may be; memory
// never goes below zero.
#pragma once

#include <string>
#include <vector>

#include "schedule/schedule.h"

namespace penstock {

// An action in its rank's lane, from 0.
struct Place {
  int rank = -1;
  int position = -1;
};

struct Fault {
  int rank = -1;       // -1 where a fault belongs to no rank (a stage that is nowhere, say)
  int position = -1;   // of the action in its rank's lane, from 0; -1 where the action is missing
  std::string action;  // its text, or the text of what is missing
  std::string reason;  // one line: what is wrong, what it waits for
  std::vector<Place> cycle = {};  // of a deadlock: what waits for one another, this action first
};

struct ValidateOptions {
  int max_faults = 50;
};

// Empty means valid. Never throws on any Schedule whose lanes hold any bytes at all.
std::vector<Fault> Validate(const Schedule& schedule, const ValidateOptions& options = {});

// The fault and the actions around it, marked, on each rank of a deadlock's cycle; of an action
// that is missing, those around the nearest of its stage and microbatch. Several lines.
std::string Describe(const Schedule& schedule, const Fault& fault);

}  // namespace penstock
