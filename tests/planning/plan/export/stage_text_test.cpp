#include "plan/export/stage_text.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "model_spec/layout.h"

namespace penstock {
namespace {

std::vector<LayerRange> StagesOf(const std::vector<std::int64_t>& counts, std::int64_t predictors) {
  std::vector<LayerRange> stages;
  std::int64_t begin = 0;
  for (const std::int64_t count : counts) {
    stages.push_back({.begin = begin, .end = begin + count});
    begin += count;
  }
  stages.front().embedding = true;
  stages.back().head = true;
  stages.back().predictors = predictors;
  return stages;
}

bool AreSame(const std::vector<LayerRange>& one, const std::vector<LayerRange>& other) {
  return std::ranges::equal(one, other, [](const LayerRange& a, const LayerRange& b) {
    return a.begin == b.begin && a.end == b.end && a.embedding == b.embedding && a.head == b.head &&
           a.predictors == b.predictors;
  });
}

TEST(StageText, IsReadBackAsTheSameStages) {
  std::mt19937 random(39);
  for (int run = 0; run < 300; ++run) {
    std::vector<std::int64_t> counts(1 + random() % 9);
    for (std::int64_t& count : counts) count = 1 + static_cast<std::int64_t>(random() % 3);
    const std::int64_t layers = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
    const std::int64_t predictors = run % 3 == 0 ? 1 : 0;
    const auto stages = StagesOf(counts, predictors);
    const LayoutSize size{layers, predictors, static_cast<int>(counts.size())};
    for (const std::string& text : {MegatronLayoutOf(stages), ModuleListsOf(stages)}) {
      // TOML allows a comma before the end of a list.
      std::string json = text;
      if (const std::size_t end = json.rfind(",\n]"); end != std::string::npos) json.erase(end, 1);
      const auto read = ParseLayout(json, size);
      ASSERT_TRUE(read) << text << ": " << read.error().line();
      EXPECT_TRUE(AreSame(*read, stages)) << text;
    }
  }
}

TEST(StageText, WritesEqualStagesOnce) {
  EXPECT_EQ(MegatronLayoutOf(StagesOf({10, 10, 10, 10, 10}, 0)), "Et*10|(t*10|)*3t*10L");
  EXPECT_EQ(MegatronLayoutOf(StagesOf({1, 2, 1}, 1)), "Et|t*2|tmL");
  EXPECT_EQ(MegatronLayoutOf(StagesOf({3}, 0)), "Et*3L");
}

}  // namespace
}  // namespace penstock
