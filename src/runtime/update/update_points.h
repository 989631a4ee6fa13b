// Where in a rank's program gradients and norms are exchanged: between its entries, so that what is
// waited for is no part of an action.
#pragma once

#include <cstddef>
#include <vector>

#include "base/result.h"
#include "runtime/program.h"
#include "runtime/update/update.h"

namespace penstock {

struct UpdatePoint {
  enum class Kind {
    kShare,            // the stage's gradients are whole: they go to its replicas
    kAdd,              // the replicas' gradients are waited for and added
    kShareParameters,  // the stage's shared parameters' gradients go to their other holders
    kAddParameters,    // theirs are waited for and added
    kMeasure,          // the stage's norms are noted
    kTell,             // the rank's norms are sent
    kAgree,            // the verdict is waited for
  };
  std::size_t before;  // this entry of the program; its size: at the end
  Kind kind;
  int stage;  // -1 where the point is the rank's

  friend bool operator==(const UpdatePoint&, const UpdatePoint&) = default;
};

// In the order of the program; empty where nothing is exchanged.
//   replicas:            share after a stage's last weight gradient, add before its STEP
//   shared parameters:   the same; with replicas they are shared when these are added
//   norm:                measure, tell and agree before the rank's first STEP
//   norm, steps early:   measure before each STEP, tell behind the last; the verdict comes in the
//                        next round (see CheckPoint)
// Errors: kInvalidArgument where several weight versions are kept, or where a STEP that waits for
// other stages comes before gradients of its own rank.
Result<std::vector<UpdatePoint>> FindUpdatePoints(const Schedule& schedule, int rank,
                                                  const Program& program, const UpdateRule& rule);

// Forwards at the beginning of each rank's program that run before the last step's verdict: those
// before its first other entry, as far as they need only one another. If the verdict asks for it
// they are run again, so no rank's may wait for anything behind another rank's verdict.
Result<std::vector<std::size_t>> FindCheckPoints(const Schedule& schedule);

}  // namespace penstock
