// The points of a rank's program at which gradients and norms are exchanged. They are between its
// entries, so that waiting is not part of an action.
#pragma once

#include <cstddef>
#include <vector>

#include "base/result.h"
#include "runtime/program.h"
#include "runtime/update/update.h"

namespace penstock {

struct UpdatePoint {
  enum class Kind {
    kShare,            // the stage's gradients are complete: send them to its replicas
    kAdd,              // wait for the replicas' gradients and add them
    kShareParameters,  // send the gradients of the stage's shared parameters to the other holders
    kAddParameters,    // wait for the other holders' gradients and add them
    kMeasure,          // record the norms of the stage
    kSend,             // send the norms of the rank
    kAgree,            // wait for the verdict
    kShareShard,       // send the stage's updated shard to its replicas
  };
  std::size_t before;  // index of an entry of the program, or its size
  Kind kind;
  int stage;  // -1 if the point belongs to the rank

  friend bool operator==(const UpdatePoint&, const UpdatePoint&) = default;
};

// Returns the points in the order of the program; none if nothing is exchanged.
//   replicas:            share after a stage's last weight gradient, add before its STEP
//   shared parameters:   the same; with replicas, they are shared when the replicas are added
//   zero 1 and 2:        send the parameters after each STEP; they are taken when the next round
//                        begins
//   zero 2 and 3:        share after REDUCE_GRAD
//   norm:                measure, send and agree before the rank's first STEP
//   norm, steps early:   measure before each STEP, send after the last; the verdict comes in the
//                        next round (see FindCheckPoints)
// Errors: kInvalidArgument if several weight versions are kept, or if a STEP that waits for other
// stages precedes gradients of its own rank.
Result<std::vector<UpdatePoint>> FindUpdatePoints(const Schedule& schedule, int rank,
                                                  const Program& program, const UpdateRule& rule);

// Returns, by rank, the number of entries at the start of its program that run before the verdict
// on the last step: its forwards before any backward, as far as they depend only on each other,
// with the UNSHARDs and RESHARDs between them. They run again if the verdict requires it, so none
// of them may wait for anything after another rank's verdict.
Result<std::vector<std::size_t>> FindCheckPoints(const Schedule& schedule);

}  // namespace penstock
