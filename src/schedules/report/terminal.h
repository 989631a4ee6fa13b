// A timeline drawn with characters, for a terminal or a plain text file.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "explain/bubbles.h"
#include "report/terminal_colors.h"
#include "schedule/schedule.h"
#include "schedule/timeline.h"
#include "simulate/memory/memory_over_time.h"

namespace penstock {

struct TerminalStyle {
  int width = 100;                        // columns of the whole line
  ColorDepth colors = ColorDepth::kNone;  // without colors, letters distinguish the ops
  bool unicode = false;                   // whether other characters than ASCII may be used
};

// What is drawn in addition to the actions; empty parts are skipped.
struct TerminalDetails {
  std::vector<std::vector<Bubble>> bubbles;  // by rank: idle cells show the cause
  std::vector<ActionAt> critical_path;       // marked below its actions
  std::vector<MemoryCurve> memory;           // by rank: a line below each lane, with its peak
  std::string memory_unit = {};
};

// Draws one line per rank below a time axis, then a legend. A character cell shows the action that
// fills most of it; a block that is wide enough shows its microbatch. Errors: kInvalidArgument if
// the timeline does not match the schedule.
Result<std::string> RenderTerminal(const Schedule& schedule, const Timeline& timeline,
                                   const TerminalStyle& style, const TerminalDetails& details = {});

}  // namespace penstock
