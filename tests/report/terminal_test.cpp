#include "report/terminal.h"

#include <gtest/gtest.h>

#include <sstream>

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
  const std::string text = Draw(schedule, {.width = 24, .color = false});
  EXPECT_EQ(LineOf(text, 0).substr(7, 9), "FF...IWIW");
  EXPECT_EQ(LineOf(text, 1).substr(7, 9), ".FFB0B1..");
}

TEST(Terminal, PairsAreMarked) {
  const Schedule schedule = ParseCsv("0F0,0F1,0B0,0B1\n1F0,(1F1;1B0)OVERLAP_F_B,1B1\n").value();
  const std::string text = Draw(schedule, {.width = 38, .color = false});
  EXPECT_EQ(LineOf(text, 1).substr(7, 24), "...F0=X1====B1====......");
  EXPECT_NE(text.find("X overlapped pair"), std::string::npos);
  EXPECT_NE(Draw(schedule, {.width = 38, .color = true}).find("▀"), std::string::npos);
}

TEST(Terminal, ManyActionsFitTheWidth) {
  ScheduleParams params;
  params.ranks = 8;
  params.microbatches = 2000;
  const Schedule schedule = Generate("1f1b", params).value();
  const std::string text = Draw(schedule, {.width = 60, .color = false});
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
