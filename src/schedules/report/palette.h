// Colors and names that terminal, SVG, page and trace share.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "explain/bubbles.h"
#include "schedule/action.h"
#include "schedule/schedule.h"
#include "schedule/timeline.h"

namespace penstock {

struct Color {
  std::uint8_t red = 0, green = 0, blue = 0;
};

// The color of an op. Later chunks are lighter; `chunk` counts the rank's stages from 0.
Color BlockColor(Op op, int chunk, int chunks);
// The color of a chunk whose op has the color `base`: lighter, by up to `lightest`.
Color ChunkColor(Color base, int chunk, int chunks, double lightest);
// The color of idle time with this cause.
Color CauseColor(BubbleCause cause);
// "#4a86e8"
std::string Hex(Color color);
// The relative luminance, from 0 to 1, and the contrast ratio, from 1 to 21, of WCAG 2.
double Luminance(Color color);
double Contrast(Color a, Color b);
// Black or white, whichever has more contrast to `background`: at least 4.5.
Color TextColor(Color background);

// The op in words: "forward", "backward for input".
std::string_view OpName(Op op);

// The op in one character, for pictures without color.
char OpLetter(Op op);

// The index of the stage among its rank's stages, and the largest number of stages on any rank.
int ChunkOf(const Placement& placement, int stage);
int MostChunks(const Placement& placement);
// What a legend says of lighter colors if some run has several chunks per rank and replica, or
// several replicas; else empty.
std::string LighterText(bool chunks, bool replicas);
// "5", or "5.2" for slice 2 of microbatch 5.
std::string MicrobatchText(const Schedule& schedule, int row);

// Whether pictures show the action: it computes, or it occupied the rank for some time. Actions
// that run in parallel to compute would cover it.
inline bool IsDrawn(const Action& action, const Span& span) {
  return IsCompute(action) || (OccupiesRank(action.first.op) && span.end > span.start);
}
// The ops among the drawn actions, each once, in the order of Op.
std::vector<Op> DrawnOps(const Schedule& schedule, const Timeline& timeline);

// Refuses a timeline without exactly one span per action, or with times that are not finite and
// ordered.
Status RequireSpans(const Schedule& schedule, const Timeline& timeline);
// Latest end of any span.
double EndOf(const Timeline& timeline);

// The distance of ticks, 1, 2 or 5 times a power of ten, that divides [0, `end`] by at most `count`
// ticks.
double TickStep(double end, int count);

}  // namespace penstock
