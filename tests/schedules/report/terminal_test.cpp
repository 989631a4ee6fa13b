#include "report/terminal.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <sstream>

#include "explain/critical_path.h"
#include "report/palette.h"
#include "schedule/catalog.h"
#include "schedule/text/text.h"
#include "simulate/simulate.h"

namespace penstock {
namespace {

Timeline TimesOf(const Schedule& schedule) {
  Timeline timeline;
  EXPECT_TRUE(Simulate(schedule, Costs::Uniform(schedule.placement, schedule.slices, 1, 1, 1),
                       {.timeline = &timeline}));
  return timeline;
}

std::string Draw(const Schedule& schedule, const TerminalStyle& style) {
  return RenderTerminal(schedule, TimesOf(schedule), style).value();
}

TerminalDetails DetailsOf(const Schedule& schedule, const Timeline& timeline) {
  const ActionInputs inputs(schedule, timeline, {});
  const Costs costs = Costs::Uniform(schedule.placement, schedule.slices, 1, 1, 1);
  return {FindBubbles(schedule, timeline, inputs), CriticalPath(schedule, timeline, inputs),
          MemoryOverTime(schedule, timeline, costs)};
}

std::string LineOf(const std::string& text, int rank) {
  std::istringstream lines(text);
  const std::string start = "rank " + std::to_string(rank);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind(start, 0) == 0) return line;
  }
  return "";
}

TEST(Terminal, OneColumnPerUnitInANarrowTerminal) {
  const Schedule schedule = ParseCsv("0F0,0F1,0I0,0W0,0I1,0W1\n1F0,1F1,1B0,1B1\n").value();
  const std::string text = Draw(schedule, {.width = 24});
  EXPECT_EQ(LineOf(text, 0).substr(7, 9), "FF...IWIW");
  EXPECT_EQ(LineOf(text, 1).substr(7, 9), ".FFB0B1..");
}

TEST(Terminal, PairsAreMarked) {
  const Schedule schedule = ParseCsv("0F0,0F1,0B0,0B1\n1F0,(1F1;1B0)OVERLAP_F_B,1B1\n").value();
  const std::string text = Draw(schedule, {.width = 38});
  EXPECT_EQ(LineOf(text, 1).substr(7, 24), "...F0=X1====B1====......");
  EXPECT_NE(text.find("X overlapped pair"), std::string::npos);
  EXPECT_NE(Draw(schedule, {.width = 38, .colors = ColorDepth::k256, .unicode = true}).find("▀"),
            std::string::npos);
}

// Draws the picture without the characters that a terminal may lack.
TEST(Terminal, WithoutUnicodeThereIsOnlyAscii) {
  const Schedule schedule = ParseCsv("0F0,0F1,0B0,0B1\n1F0,(1F1;1B0)OVERLAP_F_B,1B1\n").value();
  const Timeline timeline = TimesOf(schedule);
  const TerminalDetails details = DetailsOf(schedule, timeline);
  for (const ColorDepth colors : {ColorDepth::kNone, ColorDepth::k256, ColorDepth::kTrue}) {
    const TerminalStyle style{.width = 60, .colors = colors};
    const std::string text = RenderTerminal(schedule, timeline, style, details).value();
    EXPECT_TRUE(std::ranges::all_of(text, [](char c) { return static_cast<signed char>(c) > 0; }));
  }
}

TEST(Terminal, MarksCausesTheCriticalPathAndMemory) {
  const Schedule schedule = ParseCsv("0F0,0F1,0I0,0W0,0I1,0W1\n1F0,1F1,1B0,1B1\n").value();
  const Timeline timeline = TimesOf(schedule);
  const TerminalDetails details = DetailsOf(schedule, timeline);
  const std::string text = RenderTerminal(schedule, timeline, {.width = 27}, details).value();
  EXPECT_EQ(LineOf(text, 0).substr(7, 9), "FFw..IWIW");
  EXPECT_EQ(LineOf(text, 1).substr(7, 9), "wFFB0B1d.");
  std::istringstream lines(text.substr(text.find("rank 1")));
  std::string line;
  std::getline(lines, line);
  std::getline(lines, line);
  EXPECT_EQ(line, "        ^^^^");
  std::getline(lines, line);
  EXPECT_EQ(line.substr(7), " 5999955   2");
  EXPECT_NE(text.find("w warm-up"), std::string::npos);
}

TEST(Terminal, EveryOpAndChunkHasItsOwnColorOf256) {
  for (int chunks = 1; chunks <= 3; ++chunks) {
    std::set<int> colors;
    const std::vector<Op> ops = {Op::kForward, Op::kBackwardInput, Op::kBackwardWeight,
                                 Op::kBackward};
    for (const Op op : ops) {
      for (int chunk = 0; chunk < chunks; ++chunk) {
        colors.insert(TerminalColor(BlockColor(op, chunk, chunks)));
      }
    }
    EXPECT_EQ(colors.size(), ops.size() * static_cast<std::size_t>(chunks)) << chunks << " chunks";
  }
}

TEST(Terminal, ManyActionsFitTheWidth) {
  const Schedule schedule = Generate("1f1b", {.ranks = 8, .microbatches = 2000}).value();
  const std::string text = Draw(schedule, {.width = 60});
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 60U);
}

TEST(Terminal, RefusesATimelineOfAnotherSchedule) {
  const Schedule schedule = ParseCsv("0F0,0B0\n").value();
  Timeline timeline = TimesOf(schedule);
  timeline.spans[0].pop_back();
  EXPECT_FALSE(RenderTerminal(schedule, timeline, {}));
  EXPECT_FALSE(RenderTerminal(schedule, {}, {}));
}

TEST(Terminal, EmptyScheduleSaysThatThereIsNothingToDraw) {
  Schedule schedule = ParseCsv("0F0,0B0\n").value();
  schedule.lanes[0].clear();
  Timeline timeline;
  timeline.spans.resize(1);
  EXPECT_NE(RenderTerminal(schedule, timeline, {})->find("nothing"), std::string::npos);
}

TEST(Palette, TicksAreRoundAndFew) {
  for (const double end : {1e-9, 0.003, 0.7, 1.0, 9.99, 117.0, 1e6, 3.3e12}) {
    for (const int count : {1, 5, 12}) {
      const double step = TickStep(end, count);
      EXPECT_LE(end / step, count * (1 + 1e-9));
      EXPECT_GT(end / step, count / 2.51);
    }
  }
  EXPECT_GT(TickStep(0, 5), 0);
}

TEST(Palette, ChunksCountFromTheRanksFirstStage) {
  const Placement vee = Placement::Vee(3);
  for (int stage = 0; stage < 6; ++stage) EXPECT_EQ(ChunkOf(vee, stage), stage / 3);
  EXPECT_EQ(MostChunks(vee), 2);
  Schedule slice;
  slice.slices = 3;
  EXPECT_EQ(MicrobatchText(slice, 7), "2.1");
}

}  // namespace
}  // namespace penstock
