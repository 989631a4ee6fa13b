// The data of a page as JSON, which the page's scripts read.
#pragma once

#include <string>

#include "report/report.h"

namespace penstock {

// One object: the units, the names and colors of ops, causes of idle time and kinds of memory, the
// runs, and the points of the plots. Per run, by rank:
//   lanes    the drawn actions, flat: op, stage, microbatch index, start, end; a pair is 255, both
//            parts, then the times
//   links    the same of transfers and collectives that run in parallel
//   inputs   of each drawn action, the input that was ready last: rank and index of the drawn
//            action that computes it and when it was ready, or only -1
//   bubbles  start, end, cause, and rank, op, stage and microbatch index of what the rank waits
//            for, or only -1
//   memory   by kind: curves of time and amount
// Requires: CheckReport accepts the input. Of the times and amounts, nine digits are written.
std::string PageDataJson(const ReportInput& input);

// The bytes of a run in PageDataJson.
std::size_t RunDataSize(const ReportInput& input, const ReportRun& run);

// Whether the page shows the action on a lane below the others: it moves data while the rank
// computes.
inline bool IsLink(const Action& action, const Span& span) {
  const Op op = action.first.op;
  return !OccupiesRank(op) && !IsCommunication(op) && !IsWait(op) && span.end > span.start;
}

}  // namespace penstock
