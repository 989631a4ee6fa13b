#include "base/text/nearest.h"

#include <gtest/gtest.h>

namespace penstock {
namespace {

using Names = std::vector<std::string_view>;

const Names kCommands = {"schedules", "schedule", "validate", "simulate", "show",    "report",
                         "train",     "generate", "eval",     "graph",    "compile", "help"};
const Names kOptions = {"--ranks",    "--chunks",       "--microbatches", "--cost",
                        "--schedule", "--memory-limit", "--json",         "--stage-costs"};

TEST(Nearest, FindsTypingMistakes) {
  EXPECT_EQ(Nearest("sho", kCommands), "show");
  EXPECT_EQ(Nearest("simulat", kCommands), "simulate");
  EXPECT_EQ(Nearest("tarin", kCommands), "train");
  EXPECT_EQ(Nearest("rreport", kCommands), "report");
  EXPECT_EQ(Nearest("valigate", kCommands), "validate");
  EXPECT_EQ(Nearest("--microbaches", kOptions), "--microbatches");
  EXPECT_EQ(Nearest("--rank", kOptions), "--ranks");
}

TEST(Nearest, ReturnsTheMostSimilarAndTheFirstOfEquals) {
  EXPECT_EQ(Nearest("schedul", kCommands), "schedule");
  EXPECT_EQ(Nearest("shedules", kCommands), "schedules");
  EXPECT_EQ(Nearest("zb-h3", Names{"zb-h1", "zb-h2"}), "zb-h1");
  EXPECT_EQ(Nearest("costs", Names{"stage_costs", "cost"}), "cost");
}

TEST(Nearest, IgnoresCaseAndSeparators) {
  EXPECT_EQ(Nearest("1F1B", Names{"gpipe", "1f1b"}), "1f1b");
  EXPECT_EQ(Nearest("memory_limit", kOptions), "--memory-limit");
  EXPECT_EQ(Nearest("vhalf", Names{"v-min", "v-half"}), "v-half");
  EXPECT_EQ(Nearest("pipeline-ranks", Names{"pipeline.ranks"}), "pipeline.ranks");
}

TEST(Nearest, FindsPrefixesAndWholeWords) {
  EXPECT_EQ(Nearest("gen", kCommands), "generate");
  EXPECT_EQ(Nearest("--limit", kOptions), "--memory-limit");
  EXPECT_EQ(Nearest("num_microbatches", kOptions), "--microbatches");
  EXPECT_EQ(Nearest("interleaved_1f1b_schedule", Names{"gpipe", "interleaved"}), "interleaved");
}

TEST(Nearest, ReturnsNothingForUnrelatedWords) {
  for (const char* word : {"", "x", "s", "foo", "banana", "no-such", "a", "-", "--", "\xff"}) {
    EXPECT_EQ(Nearest(word, kCommands), "") << word;
  }
  EXPECT_EQ(Nearest("--verbose", kOptions), "");
  EXPECT_EQ(Nearest("ab", Names{"cd", "ef"}), "");
  EXPECT_EQ(Nearest("show", {}), "");
  EXPECT_EQ(Nearest(std::string(100'000, 's'), kCommands), "");
}

TEST(DidYouMean, AsksOrReturnsTheOtherText) {
  EXPECT_EQ(DidYouMean("sho", kCommands), "did you mean 'show'?");
  EXPECT_EQ(DidYouMean("banana", kCommands), "");
  EXPECT_EQ(DidYouMean("banana", kCommands, "see --help"), "see --help");
  EXPECT_EQ(Suggestion("sho", kCommands), "; did you mean 'show'?");
  EXPECT_EQ(Suggestion("banana", kCommands), "");
}

}  // namespace
}  // namespace penstock
