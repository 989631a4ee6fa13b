#include "monitor/status_text.h"

#include <gtest/gtest.h>

#include <limits>
#include <sstream>

#include "tests/engine/monitor/make_metrics.h"

namespace penstock {
namespace {

constexpr RunSigns kRunning = {.has_process = true, .locked = 100, .changed = 200, .now = 203};

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

TEST(StatusText, ShowsTheFiguresAndTheRanks) {
  const auto metrics = MadeSteps(60, {0.3, 0.4});
  const std::string text = StatusText(StatusOf(MadeRun("a\x1b[2J", 100), metrics, kRunning), {});
  for (const char* part :
       {"step 60/100", "last step 3.0 s ago", "loss 3.505", "(-0.200 in 20 steps)", "2000 tokens/s",
        "bubble 25.0%", "20.0 s left", "400.0 ms", "20.0%", "1.00 MiB", "█", "▁"}) {
    EXPECT_TRUE(HasText(text, part)) << part << "\n" << text;
  }
  EXPECT_FALSE(HasText(text, "\x1b"));
  EXPECT_FALSE(HasText(text, "straggler"));
}

TEST(StatusText, FitsTheTerminal) {
  std::vector<double> busy(50, 0.1);
  busy[30] = 0.4;
  RunDescription run = MadeRun("a\x1b[2J", 100);
  run.work.resize(50);
  const auto metrics = MadeSteps(60, busy);
  const RunStatus status = StatusOf(run, metrics, kRunning);
  for (const int columns : {10, 40, 80, 200}) {
    const auto lines = Lines(StatusText(status, {columns, 24}));
    EXPECT_LE(lines.size(), 24U);
    for (const std::string& line : lines) {
      const auto width = std::count_if(line.begin(), line.end(), [](char c) {
        return (static_cast<unsigned char>(c) >> 6) != 2;
      });
      EXPECT_LE(width, columns) << line;
    }
  }
  // The stragglers are visible although their rows are not.
  EXPECT_TRUE(HasText(StatusText(status, {80, 24}), "stragglers: rank 30 takes 4.00 times"));
  EXPECT_TRUE(HasText(StatusText(status, {80, 24}), "more; the JSON output has all"));
  EXPECT_EQ(Lines(StatusText(status, {80, 0})).size(), 3U + 3 + 50 + 2);
}

TEST(StatusText, OneLineForLogs) {
  const auto metrics = MadeSteps(60, {0.3, 0.4});
  EXPECT_EQ(StatusLine(StatusOf(MadeRun("a\x1b[2J", 100), metrics, kRunning)),
            "step 60/100  loss 3.505  2000 tokens/s  bubble 25.0%  activations 1.00 MiB  20.0 s "
            "left");
  RunSigns late = kRunning;
  late.now = 300;
  EXPECT_TRUE(HasText(StatusLine(StatusOf(MadeRun("a\x1b[2J", 100), metrics, late)),
                      "stalled: last step 1 m"));
  EXPECT_TRUE(HasText(StatusLine(StatusOf(MadeRun("a\x1b[2J", 100), metrics, {})), "stopped"));
  RunStatus none;
  none.folder = "runs/a";
  EXPECT_EQ(StatusLine(none), "waiting for a run in runs/a");
}

TEST(StatusText, LossPointsAreMeansOfEquallyManySteps) {
  auto metrics = MadeSteps(10, {});
  EXPECT_EQ(LossPoints(metrics, 100).size(), 10U);
  for (StepMetric& metric : metrics) metric.loss = static_cast<double>(metric.step);
  metrics[9].loss = std::numeric_limits<double>::quiet_NaN();
  using Points = std::vector<std::pair<double, double>>;
  EXPECT_EQ(LossPoints(metrics, 4), (Points{{2, 1}, {5, 4}, {8, 7}}));
  EXPECT_TRUE(LossPoints(metrics, 0).empty());
  EXPECT_TRUE(LossPoints({}, 4).empty());
}

}  // namespace
}  // namespace penstock
