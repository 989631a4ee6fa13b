// A timeline drawn with characters, for a terminal or a plain text file.
#pragma once

#include <string>

#include "base/result.h"
#include "schedule/schedule.h"
#include "schedule/timeline.h"

namespace penstock {

struct TerminalStyle {
  int width = 100;     // columns of the whole line
  bool color = false;  // 256-colour escapes; else letters tell the ops apart
};

// One line a rank under a time axis, then a legend. A character cell shows the action that fills
// most of it; a block wide enough carries its microbatch. Errors: kInvalidArgument where the
// timeline is not the schedule's.
Result<std::string> RenderTerminal(const Schedule& schedule, const Timeline& timeline,
                                   const TerminalStyle& style);

}  // namespace penstock
