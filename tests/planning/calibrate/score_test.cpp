#include "calibrate/score.h"

#include <gtest/gtest.h>

namespace penstock {
namespace {

Prediction Of(std::string group, double predicted, double measured) {
  Prediction each;
  each.group = std::move(group);
  each.step_time = each.device_seconds = predicted;
  each.measured_step_time = each.measured_device_seconds = measured;
  return each;
}

TEST(Score, CountsErrorsPairsAndRegret) {
  // In group a, the prediction chooses the second row, which takes a tenth longer than the first.
  const Scores scores =
      ScoresOf({Of("a", 1.2, 1), Of("a", 1.1, 1.1), Of("a", 3, 2), Of("b", 5, 5)});
  EXPECT_DOUBLE_EQ(scores.time.mape, (0.2 + 0 + 0.5 + 0) / 4);
  EXPECT_DOUBLE_EQ(scores.time.bias, (0.2 + 0 + 0.5 + 0) / 4);
  EXPECT_EQ(scores.time.pairs, 3u);
  EXPECT_DOUBLE_EQ(scores.time.pairs_in_order, 2. / 3);
  ASSERT_EQ(scores.groups.size(), 1u);  // a group of one row leaves no choice
  EXPECT_EQ(scores.groups[0].group, "a");
  EXPECT_FALSE(scores.groups[0].best_found);
  EXPECT_NEAR(scores.groups[0].regret, 0.1, 1e-12);
}

TEST(Score, EqualPredictionsChooseTheSlowestRow) {
  const Scores scores = ScoresOf({Of("a", 1, 1), Of("a", 1, 2)});
  EXPECT_DOUBLE_EQ(scores.groups[0].regret, 1);
  EXPECT_DOUBLE_EQ(scores.time.pairs_in_order, 0);
  // Rows that are equally fast as measured are no pair.
  EXPECT_EQ(ScoresOf({Of("a", 1, 1), Of("a", 2, 1)}).time.pairs, 0u);
  EXPECT_TRUE(ScoresOf({Of("a", 1, 1), Of("a", 2, 1)}).groups[0].best_found);
}

TEST(Score, CountsRowsWithMemoryOnly) {
  std::vector<Prediction> rows(3);
  rows[0].peak_bytes = 104;
  rows[1].peak_bytes = 92;
  rows[2].peak_bytes = 111;
  for (Prediction& row : rows) row.measured_peak_bytes = 100;
  const Scores scores = ScoresOf(rows);
  EXPECT_EQ(scores.time.rows, 0u);
  EXPECT_TRUE(scores.groups.empty());
  EXPECT_EQ(scores.memory.rows, 3u);
  EXPECT_DOUBLE_EQ(scores.memory.within_5, 1. / 3);
  EXPECT_DOUBLE_EQ(scores.memory.within_10, 2. / 3);
  EXPECT_EQ(ScoresOf({}).memory.rows, 0u);
}

}  // namespace
}  // namespace penstock
