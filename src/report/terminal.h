// A timeline drawn with characters, for a terminal or a plain text file.
#pragma once

#include <string>

#include "base/result.h"
#include "schedule/schedule.h"
#include "schedule/timeline.h"

namespace penstock {

struct TerminalStyle {
  int width = 100;     // columns of the whole line
  bool color = false;  // 256-color escapes; otherwise letters distinguish the ops
};

// Draws one line per rank below a time axis, then a legend. A character cell shows the action that
// fills most of it; a block that is wide enough shows its microbatch. Errors: kInvalidArgument if
// the timeline does not match the schedule.
Result<std::string> RenderTerminal(const Schedule& schedule, const Timeline& timeline,
                                   const TerminalStyle& style);

}  // namespace penstock
