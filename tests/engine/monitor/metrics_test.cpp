#include "monitor/metrics.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cmath>
#include <csignal>

#include "base/files.h"
#include "tests/engine/train/temp_folder.h"
#include "tests/results.h"

namespace penstock {
namespace {

StepMetric Metric(std::int64_t step) {
  return {.step = step, .loss = 1.5, .grad_norm = 0.25, .clipped = true, .tokens_per_second = 1024};
}

TEST(Metrics, ReadsItsLinesAndThoseOfEarlierVersions) {
  const TempFolder folder;
  const std::string old = R"({"step":0,"loss":null,"lr":0.1,"bubble":0.2,"seconds":3})";
  const auto read = ReadMetrics(folder.Write("a", old + "\n" + MetricLine(Metric(1))), 9);
  ASSERT_EQ(read.size(), 2U);
  EXPECT_TRUE(std::isnan(read[0].loss));
  EXPECT_FALSE(read[0].clipped);
  EXPECT_TRUE(read[0].ranks.empty());
  EXPECT_EQ(read[0].tokens_per_second, 0);
  EXPECT_EQ(read[1].grad_norm, 0.25);
  EXPECT_EQ(read[1].tokens_per_second, 1024);
  EXPECT_TRUE(read[1].clipped);
  EXPECT_FALSE(read[1].skipped);
}

TEST(Metrics, ALineHasTheFiguresOfEveryRankAsArrays) {
  StepMetric metric = Metric(3);
  metric.ranks = {{0.062612345, 0.25, 4096}, {0.5, 1.0 / 3, 0}};
  const std::string line = MetricLine(metric);
  EXPECT_TRUE(Contains(line, R"("busy":[0.062612345,0.5],"rank_bubble":[0.25,0.3333],)"
                             R"("peak_activation_bytes":[4096,0]})"));
  const auto read = ParseMetric(line);
  ASSERT_TRUE(read);
  ASSERT_EQ(read->ranks.size(), 2U);
  EXPECT_EQ(read->ranks[0].busy, 0.062612345);
  EXPECT_EQ(read->ranks[0].peak_activation_bytes, 4096);
  EXPECT_NEAR(read->ranks[1].bubble, 1.0 / 3, 1e-4);
}

TEST(Metrics, ALineWithArraysOfDifferentLengthsIsInvalid) {
  StepMetric metric = Metric(3);
  metric.ranks.resize(2);
  std::string line = MetricLine(metric);
  line.replace(line.find("\"rank_bubble\":[0.0,0.0]"), 23, "\"rank_bubble\":[0.0]");
  EXPECT_FALSE(ParseMetric(line));
}

TEST(Metrics, ALineWithCountsThatAreNotWholeOrTooLargeIsInvalid) {
  StepMetric metric = Metric(3);
  metric.ranks.resize(1);
  const std::string line = MetricLine(metric);
  ASSERT_TRUE(ParseMetric(line));
  for (const char* count : {"6e107", "99999999999999999999", "-1", "3.5", "null"}) {
    for (const std::string key : {"\"step\":3", "\"peak_activation_bytes\":[0"}) {
      std::string bad = line;
      const std::string start = key.substr(0, key.size() - 1);
      bad.replace(bad.find(key), key.size(), start + count);
      EXPECT_FALSE(ParseMetric(bad)) << bad;
    }
    EXPECT_FALSE(ParseHeldOut(fmt::format(R"({{"step":{},"held_out_loss":1}})", count))) << count;
  }
}

TEST(Metrics, AResumedFileHasHeldOutLossesAfterTheirSteps) {
  const TempFolder folder;
  const std::string path = folder / "metrics.jsonl";
  const std::vector<HeldOutMetric> held_out = {{1, 0.1}, {3, 1.0 / 3}};
  MetricsFile file(path, {Metric(0), Metric(1), Metric(2), Metric(3)}, held_out);
  ASSERT_TRUE(file.Append(Metric(4)));
  ASSERT_TRUE(file.Append(HeldOutMetric{4, std::nan("")}));
  EXPECT_EQ(ReadFile(path).value(),
            MetricLine(Metric(0)) + MetricLine(Metric(1)) + MetricLine(held_out[0]) +
                MetricLine(Metric(2)) + MetricLine(Metric(3)) + MetricLine(held_out[1]) +
                MetricLine(Metric(4)) + "{\"step\":4,\"held_out_loss\":null}\n");
  EXPECT_EQ(ReadMetrics(path, 9).size(), 5U);
  const auto read = ReadHeldOut(path, 9);
  ASSERT_EQ(read.size(), 3U);
  EXPECT_EQ(read[1].loss, 1.0 / 3);
  EXPECT_TRUE(std::isnan(read[2].loss));
  EXPECT_EQ(ReadHeldOut(path, 3).size(), 1U);
}

// A limit on the size of files simulates a full disk.
TEST(Metrics, RemovesALineThatDoesNotFitOnTheDisk) {
  const TempFolder folder;
  const std::string path = folder / "metrics.jsonl";
  MetricsFile file(path, {});
  ASSERT_TRUE(file.Append(Metric(0)));
  const std::string before = ReadFile(path).value();
  rlimit limit{};
  getrlimit(RLIMIT_FSIZE, &limit);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit full = {before.size() + 10, limit.rlim_max};
  setrlimit(RLIMIT_FSIZE, &full);
  const Status status = file.Append(Metric(1));
  setrlimit(RLIMIT_FSIZE, &limit);
  std::signal(SIGXFSZ, handler);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kUnavailable);
  EXPECT_TRUE(Contains(status.error().line(), "full"));
  EXPECT_EQ(ReadFile(path).value(), before);
}

TEST(Metrics, ARunThatSkipsMostStepsFails) {
  const auto fails = [](int steps, auto skipped) {
    std::vector<StepMetric> metrics;
    for (int step = 0; step < steps; ++step) {
      metrics.push_back(Metric(step));
      metrics.back().skipped = skipped(step);
    }
    return !CheckSkipped(metrics);
  };
  EXPECT_FALSE(fails(0, [](int) { return true; }));
  EXPECT_FALSE(fails(100, [](int step) { return step % 2 == 0; }));
  EXPECT_TRUE(fails(100, [](int step) { return step % 3 != 0; }));
  EXPECT_FALSE(fails(100, [](int step) { return step == 99; }));  // only the last step
  EXPECT_TRUE(fails(100, [](int step) { return step >= 94; }));   // most of the last tenth
  EXPECT_TRUE(fails(5, [](int step) { return step == 4; }));
}

}  // namespace
}  // namespace penstock
