// The colours and words of the pictures, in one place for terminal, SVG, page and trace.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "schedule/action.h"
#include "schedule/schedule.h"
#include "schedule/timeline.h"

namespace penstock {

struct Color {
  std::uint8_t red = 0, green = 0, blue = 0;
};

// A stage's op; later chunks of a rank are lighter. `chunk` counts the rank's stages from 0.
Color BlockColor(Op op, int chunk, int chunks);
// "#4a86e8"
std::string Hex(Color color);
// Black or white, whichever is read better on it.
Color TextColor(Color background);
// Nearest in the 6x6x6 cube of 256-colour terminals.
int TerminalColor(Color color);

// What an op is to a reader: "forward", "backward for input".
std::string_view OpName(Op op);

// Place of the stage among its rank's stages, from 0, and how many there are at most on a rank.
int ChunkOf(const Placement& placement, int stage);
int MostChunks(const Placement& placement);
// "5", or "5.2" for slice 2 of microbatch 5.
std::string MicrobatchText(const Schedule& schedule, int row);

// Whether the picture shows the action: it computes, or it occupied the rank for a time. What runs
// beside compute would cover it.
inline bool IsDrawn(const Action& action, const Span& span) {
  return IsCompute(action) || (OccupiesRank(action.first.op) && span.end > span.start);
}
// The ops that the schedule holds among those drawn, each once, in the order of Op.
std::vector<Op> DrawnOps(const Schedule& schedule, const Timeline& timeline);

// Refuses a timeline that has not one span an action, or times that are not finite and ordered.
Status RequireSpans(const Schedule& schedule, const Timeline& timeline);
// Latest end of any span.
double EndOf(const Timeline& timeline);

// Steps of 1, 2 or 5 times a power of ten: from 0 to `end` in at most `count` ticks.
double TickStep(double end, int count);

}  // namespace penstock
