// The schedule that a configuration describes.
#include "config/run_schedule.h"

#include <gtest/gtest.h>

#include "schedule/text/text.h"
#include "tests/engine/train/temp_folder.h"
#include "tests/results.h"

namespace penstock {
namespace {

Result<Schedule> Choose(const std::vector<std::string>& overrides) {
  PENSTOCK_TRY(TrainConfig config, ParseTrainConfig("model: {layers: 8}", "a.yaml", overrides));
  return ChooseSchedule(config, 4);
}

std::string LanesOf(const std::vector<std::string>& overrides) {
  const auto schedule = Choose(overrides);
  EXPECT_TRUE(schedule) << schedule.error().line();
  return schedule ? WriteCsv(*schedule) : "";
}

std::string ErrorOf(const std::vector<std::string>& overrides) { return LineOf(Choose(overrides)); }

// Each option changes the schedule, so it reaches the algorithm.
TEST(Setup, OptionsReachTheSchedule) {
  const std::vector<std::string> interleaved = {"schedule=interleaved", "ranks=2", "chunks=2"};
  const auto with = [](std::vector<std::string> all, const std::vector<std::string>& more) {
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  EXPECT_NE(LanesOf(interleaved), LanesOf(with(interleaved, {"group=4"})));
  const std::vector<std::string> hanayo = {"schedule=hanayo", "ranks=2"};
  EXPECT_NE(LanesOf(with(hanayo, {"waves=1"})), LanesOf(with(hanayo, {"waves=2"})));
  const std::vector<std::string> automatic = {"schedule=v-auto", "ranks=4"};
  EXPECT_NE(LanesOf(with(automatic, {"pipeline.memory_limit=2.5"})), LanesOf(automatic));
  const std::vector<std::string> priced = {"schedule=zb-auto", "ranks=4"};
  EXPECT_NE(LanesOf(with(priced, {"cost=1,3,1"})), LanesOf(with(priced, {"cost=1,1,3"})));
}

TEST(Setup, RefusesOptionsWithoutAnEffect) {
  EXPECT_EQ(ErrorOf({"schedule=1f1b", "ranks=2", "group=2"}),
            "schedule 1f1b: pipeline.group 2: the schedule takes no group");
  EXPECT_EQ(ErrorOf({"schedule=1f1b", "ranks=2", "pipeline.memory_limit=2"}),
            "schedule 1f1b: pipeline.memory_limit 2: the schedule takes no memory_limit");
  EXPECT_EQ(ErrorOf({"schedule=zb-auto", "ranks=2", "cost=1,x,1"}),
            "pipeline.cost: '1,x,1': 'x' is not a number");
  EXPECT_EQ(
      ErrorOf({"schedule=zb-auto", "ranks=2", "overlap=mx"}),
      "pipeline.overlap: 'mx': give max, sum, or a factor of F + B from 0 to 1000; did you mean "
      "'max'?");
  const TempFolder folder;
  const std::string path = folder.Write("a.csv", "0F0,0B0\n1F0,1B0\n");
  EXPECT_EQ(ErrorOf({"csv=" + path, "waves=2"}),
            "pipeline.waves has no effect, because the schedule is read from a file: remove it");
}

// The balancing loss of experts is not linear in their load.
TEST(Setup, SlicesTakeNoBalancingLoss) {
  for (const char* const model : {"mixtral", "qwen3_moe", "deepseek_v2"}) {
    const std::vector<std::string> sliced = {std::string("model.name=") + model, "schedule=seq1f1b",
                                             "ranks=2", "slices=2"};
    EXPECT_TRUE(Contains(ErrorOf(sliced), "model.balance")) << ErrorOf(sliced);
    for (const char* const remedy :
         {"model.balance=none", "model.balance=bias", "model.balance_loss=0"}) {
      std::vector<std::string> all = sliced;
      all.emplace_back(remedy);
      EXPECT_NE(LanesOf(all), "") << model << " " << remedy;
    }
  }
}

TEST(Setup, ErrorsAboutTheScheduleHaveTheirLine) {
  const std::tuple<const char*, int, const char*> cases[] = {
      {"pipeline:\n  ranks: 2\n  group: 2\n  schedule: 1f1b\n", 3,
       "schedule 1f1b: pipeline.group 2"},
      {"pipeline:\n  ranks: 2\n  schedule: 2f2b\n", 3, "no schedule is called"},
      {"pipeline:\n  microbatches: 7\nparallel: {data: 2}\n", 2, "pipeline.microbatches 7"},
      {"model: {layers: 8}\nparallel: {data: 3}\n", 2, "pipeline.microbatches 8"},
      {"model:\n  layers: 2\n", 2, "2 layers cannot fill 4 stages"},
      {"model: {layers: 8}\npipeline:\n  stage_layers: [8]\n", 3, "layers per stage"},
      {"name: a\nparallel: {expert: 2}\n", 2, "parallel.expert 2: model llama has no experts"},
      {"name: a\nparallel: {tensor: 3}\n", 2, "parallel.tensor 3 does not divide 4 (model.heads)"},
      {"name: a\nparallel: {tensor: 2, shard_vocabulary: true}\n", 2,
       "parallel.shard_vocabulary: the 2 ranks of parallel.tensor divide the embedding"},
      {"name: a\nparallel: {tensor: 4, expert_tensor: 2}\nmodel: {name: mixtral}\n", 2,
       "parallel.expert_tensor 2: it must be 1 or parallel.tensor, 4"},
      {"name: a\nparallel: {expert_tensor: 2}\n", 2,
       "parallel.expert_tensor 2: model llama has no experts; leave it out"},
      {"name: a\nparallel: {tensor: 2, expert_tensor: 1}\nmodel: {name: mixtral, sequence: 9}\n", 2,
       "all ranks have all tokens, because they do not divide the tokens of samples"},
      {"name: a\nparallel: {tensor: 2, expert_tensor: 1, sequence_parallel: false}\n"
       "model: {name: mixtral}\n",
       2, "because parallel.sequence_parallel is false"},
      {"name: a\nparallel: {tensor: 4}\nmodel: {name: mixtral, heads: 4, kv_heads: 4, "
       "expert_hidden: 6}\n",
       2, "parallel.tensor 4 does not divide 6 (model.expert_hidden)"},
      {"name: a\nparallel: {context: 2, shard_vocabulary: true}\n", 2,
       "parallel.context 2 cannot be combined with parallel.shard_vocabulary"},
      {"name: a\nmodel: {heads: 4, kv_heads: 4}\nparallel: {context: 3, context_exchange: "
       "ulysses}\n",
       3,
       "parallel.context_exchange ulysses: 3 ranks do not divide the 4 heads of a rank "
       "(model.heads)"},
      {"name: a\nparallel: {context: 2, context_exchange: ring}\npipeline: {schedule: seq1f1b, "
       "slices: 2}\n",
       2,
       "parallel.context_exchange ring cannot be combined with a schedule with slices: use "
       "all-gather or ulysses"},
      {"name: a\nmodel: {sequence: 30}\nparallel: {context: 2}\npipeline: {schedule: seq1f1b, "
       "slices: 2}\n",
       3,
       "parallel.context 2: a schedule with slices needs tokens that 4 equal blocks divide, not "
       "15"},
      {"name: a\nmodel: {name: mixtral, sequence: 30, balance: loss}\nparallel: {context: 2}\n", 3,
       "parallel.context 2: model.balance needs tokens that 4 equal blocks divide, not 30"},
      {"name: a\nmodel: {name: deepseek_v3, predictor: 1}\nparallel: {context: 2}\n", 3,
       "parallel.context 2: model.predictor needs model.balance=none with several ranks"},
      {"name: a\npipeline: {cost: '1,x,1'}\n", 2, "pipeline.cost: '1,x,1'"},
      {"name: a\npipeline: {slices: 3}\n", 2, "pipeline.slices 3"},
      {"name: a\npipeline: {csv: none.csv}\n", 2, "cannot"}};
  for (const auto& [yaml, line, text] : cases) {
    auto config = ParseTrainConfig(yaml, "a.yaml");
    ASSERT_TRUE(config) << config.error().line();
    const auto schedule = ChooseSchedule(*config, 4);
    ASSERT_FALSE(schedule) << yaml;
    const std::string error = schedule.error().line();
    EXPECT_TRUE(error.starts_with(fmt::format("a.yaml: line {}: ", line))) << error;
    EXPECT_NE(error.find(text), std::string::npos) << error;
  }
}

}  // namespace
}  // namespace penstock
