#include "monitor/follow_metrics.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/files.h"
#include "tests/engine/monitor/make_metrics.h"
#include "tests/engine/train/temp_folder.h"

namespace penstock {
namespace {

void AppendText(const std::string& path, std::string_view text) {
  std::ofstream(path, std::ios::app | std::ios::binary) << text;
}

TEST(FollowMetrics, ReadsLinesAsTheFileGrows) {
  const TempFolder folder;
  const std::string path = folder / "metrics.jsonl";
  MetricsFollower follower(path);
  follower.Read();
  EXPECT_TRUE(follower.metrics().empty());
  EXPECT_EQ(follower.changed(), 0);
  AppendText(path, MetricLine(MadeStep(0, {1})));
  follower.Read();
  ASSERT_EQ(follower.metrics().size(), 1U);
  EXPECT_GT(follower.changed(), 0);

  // The end of the second line is not on the disk yet.
  const std::string second = MetricLine(MadeStep(1, {1}));
  AppendText(path, second.substr(0, 30));
  follower.Read();
  EXPECT_EQ(follower.metrics().size(), 1U);
  AppendText(path, second.substr(30) + "nonsense\n" + MetricLine(MadeStep(2, {1})));
  follower.Read();
  ASSERT_EQ(follower.metrics().size(), 3U);
  EXPECT_EQ(follower.metrics()[2].step, 2);
}

TEST(FollowMetrics, StartsOverWhenAResumedRunReplacesTheFile) {
  const TempFolder folder;
  const std::string path = folder / "metrics.jsonl";
  std::string lines;
  for (const StepMetric& metric : MadeSteps(5, {1})) lines += MetricLine(metric);
  AppendText(path, lines);
  MetricsFollower follower(path);
  follower.Read();
  ASSERT_EQ(follower.metrics().size(), 5U);

  // It resumes from step 3 and is already further than before.
  std::string resumed;
  for (const StepMetric& metric : MadeSteps(7, {1, 1})) resumed += MetricLine(metric);
  ASSERT_TRUE(WriteFileAtomically(path, resumed));
  follower.Read();
  ASSERT_EQ(follower.metrics().size(), 7U);
  EXPECT_EQ(follower.metrics().front().ranks.size(), 2U);

  std::filesystem::resize_file(path, 0);
  follower.Read();
  EXPECT_TRUE(follower.metrics().empty());
}

}  // namespace
}  // namespace penstock
