// Dumps in Primus's format round-trip, and the variants that Primus writes are read.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "interop/primus/dump.h"
#include "schedule/catalog.h"
#include "schedule/passes/passes.h"
#include "schedule/text/text.h"
#include "schedule/validate/validate.h"
#include "tests/results.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

class PrimusDumps : public ::testing::Test {
 protected:
  PrimusDumps() : folder_(fs::temp_directory_path() / fmt::format("penstock-dump-{}", getpid())) {
    fs::create_directories(folder_);
  }
  ~PrimusDumps() override { fs::remove_all(folder_); }

  std::string Folder() const { return (folder_ / "dump").string(); }
  void Write(const std::string& name, const Json& json) const {
    fs::create_directories(Folder());
    std::ofstream(fs::path(Folder()) / name) << json.dump();
  }

 private:
  fs::path folder_;
};

ScheduleParams Shape(int ranks, int chunks, int microbatches) {
  return {.ranks = ranks, .chunks = chunks, .microbatches = microbatches};
}

TEST_F(PrimusDumps, SchedulesOfOneChainRoundTrip) {
  int saved = 0;
  for (const Algorithm& algorithm : Catalog()) {
    if (algorithm.supported.replicas != 1 || algorithm.supported.steps) continue;
    for (const int ranks : {1, 2, 3, 5}) {
      SCOPED_TRACE(fmt::format("{} p={}", algorithm.name, ranks));
      const auto schedule = Generate(algorithm.name, Shape(ranks, 0, 10));
      if (!schedule) continue;
      Costs costs = Costs::Uniform(schedule->placement, 1, 3, 2, 4);
      costs.overlap.kind = OverlapRule::Kind::kSum;
      Timeline timeline;
      const auto result = ValueOf(Simulate(*schedule, costs, {.timeline = &timeline}));
      ASSERT_TRUE(SavePrimusDump({*schedule, timeline, costs, result}, Folder()));
      ASSERT_TRUE(IsPrimusDump(Folder()));
      auto dump = ValueOf(LoadPrimusDump(Folder()));
      EXPECT_EQ(dump.schedule.microbatches, 10);
      EXPECT_EQ(dump.schedule.placement, schedule->placement);
      EXPECT_EQ(WriteCsv(dump.schedule), WriteCsv(*schedule));
      for (std::size_t rank = 0; rank < timeline.spans.size(); ++rank) {
        ASSERT_EQ(dump.timeline.spans[rank].size(), timeline.spans[rank].size());
        EXPECT_EQ(dump.timeline.spans[rank].back().end, timeline.spans[rank].back().end);
      }
      dump.costs.overlap = costs.overlap;
      const auto again = ValueOf(Simulate(dump.schedule, dump.costs));
      EXPECT_DOUBLE_EQ(again.makespan, result.makespan);
      EXPECT_DOUBLE_EQ(again.peak_memory, result.peak_memory);
      fs::remove_all(Folder());
      ++saved;
    }
  }
  EXPECT_GE(saved, 50);
}

TEST_F(PrimusDumps, FormatIsThatOfPrimusSimulator) {
  const auto schedule = Generate("zb-h1", Shape(2, 0, 2));
  ASSERT_TRUE(schedule);
  const Schedule lowered = AddCommunication(*schedule);
  const Costs costs = Costs::Uniform(lowered.placement, 1, 1000, 1000, 1000);
  Timeline timeline;
  const auto result = Simulate(lowered, costs, {.timeline = &timeline});
  ASSERT_TRUE(result);
  ASSERT_TRUE(SavePrimusDump({lowered, timeline, costs, *result}, Folder()));
  EXPECT_EQ(Json::parse(*ReadFile(Folder() + "/config.json")),
            Json::parse(R"({"pp_size": 2, "vpp_size": 1, "micro_batches": 2})"));
  EXPECT_EQ(Json::parse(*ReadFile(Folder() + "/pp_rank_1.json")), Json::parse(R"({"0": {
    "total": 7000, "memory": 2,
    "fwd_start": [1000, 3000], "fwd_end": [2000, 4000], "bwd_start": [2000, 4000],
    "bwd_end": [3000, 5000], "wgrad_start": [5000, 6000], "wgrad_end": [6000, 7000],
    "fwd_minibatch": [0, 1], "fwd_chunk": [0, 0], "bwd_minibatch": [0, 1], "bwd_chunk": [0, 0],
    "wgrad_minibatch": [0, 1], "wgrad_chunk": [0, 0],
    "activation_memory_usage": [1, 2, 1, 0]}})"))
      << *ReadFile(Folder() + "/pp_rank_1.json");
}

// Primus's trainer writes several iterations and the keys "vp_size" and "num_mbs", and records no
// microbatches.
TEST_F(PrimusDumps, ReadsTrainerDumpsWithoutMicrobatches) {
  const auto schedule = Generate("interleaved", Shape(2, 2, 6));
  ASSERT_TRUE(schedule);
  const Costs costs = Costs::Uniform(schedule->placement, 1, 2, 2, 2);
  Timeline timeline;
  const auto result = Simulate(*schedule, costs, {.timeline = &timeline});
  ASSERT_TRUE(result);
  ASSERT_TRUE(SavePrimusDump({*schedule, timeline, costs, *result}, Folder()));
  for (const int rank : {0, 1}) {
    const std::string name = fmt::format("pp_rank_{}.json", rank);
    Json iteration = Json::parse(*ReadFile(Folder() + "/" + name))["0"];
    for (const char* key :
         {"fwd_minibatch", "bwd_minibatch", "fwd_chunk", "bwd_chunk", "activation_memory_usage"}) {
      iteration.erase(key);
    }
    Json slow = iteration;
    for (const char* key : {"fwd_start", "fwd_end", "bwd_start", "bwd_end"}) {
      for (Json& time : slow[key]) time = 10 * time.get<double>();
    }
    Write(name, {{"9", slow}, {"10", iteration}});
  }
  Write("config.json", {{"pp_size", 2}, {"vp_size", 2}, {"num_mbs", 6}, {"train_iters", 11}});

  const auto last = ValueOf(LoadPrimusDump(Folder()));
  EXPECT_EQ(last.schedule.placement, Placement::Looped(2, 2));
  EXPECT_EQ(WriteCsv(last.schedule), WriteCsv(*schedule));
  EXPECT_EQ(Simulate(last.schedule, last.costs)->makespan, result->makespan);
  const auto slow = ValueOf(LoadPrimusDump(Folder(), 9));
  EXPECT_EQ(Simulate(slow.schedule, slow.costs)->makespan, 10 * result->makespan);
  EXPECT_FALSE(LoadPrimusDump(Folder(), 8));
}

TEST_F(PrimusDumps, SlicesAreRefused) {
  ScheduleParams params = Shape(2, 0, 4);
  params.slices = 2;
  const auto schedule = Generate("seq1f1b", params);
  ASSERT_TRUE(schedule);
  const Costs costs = Costs::Uniform(schedule->placement, 2, 1, 1, 1);
  Timeline timeline;
  const auto result = Simulate(*schedule, costs, {.timeline = &timeline});
  ASSERT_TRUE(result);
  EXPECT_FALSE(SavePrimusDump({*schedule, timeline, costs, *result}, Folder()));
  EXPECT_FALSE(fs::exists(Folder()));
}

TEST_F(PrimusDumps, BrokenFilesAreRefusedByName) {
  const Json good = Json::parse(R"({"0": {"fwd_start": [0], "fwd_end": [1], "fwd_minibatch": [0],
    "fwd_chunk": [0], "bwd_start": [1], "bwd_end": [3], "bwd_minibatch": [0], "bwd_chunk": [0]}})");
  Write("pp_rank_0.json", good);
  ASSERT_TRUE(LoadPrimusDump(Folder()));
  EXPECT_TRUE(Validate(LoadPrimusDump(Folder())->schedule).empty());

  const auto refused = [&](const Json& rank) {
    Write("pp_rank_0.json", rank);
    const auto dump = LoadPrimusDump(Folder());
    return !dump && dump.error().line().find("dump") != std::string::npos &&
           dump.error().line().find('\n') == std::string::npos;
  };
  for (const char* key : {"fwd_start", "fwd_end", "fwd_minibatch", "fwd_chunk", "bwd_start"}) {
    for (const char* value : {"3", "[\"a\"]", "[0, 1]", "[-1]", "[1e300]", "{}", "[null]"}) {
      Json broken = good;
      broken["0"][key] = Json::parse(value);
      // A start before time zero is unusual but accepted.
      if (std::string(value) == "[-1]" && std::string(key).find("start") != std::string::npos) {
        continue;
      }
      if (std::string(value) == "[1e300]" && std::string(key) == "fwd_end") continue;
      EXPECT_TRUE(refused(broken)) << key << " " << value;
    }
  }
  EXPECT_TRUE(refused(Json::object()));
  EXPECT_TRUE(refused(Json::array()));
  EXPECT_TRUE(refused({{"0", 3}}));
  EXPECT_TRUE(refused({{"first", good["0"]}}));
  EXPECT_TRUE(refused({{"0", Json::object()}}));
  std::ofstream(fs::path(Folder()) / "pp_rank_0.json") << "{\"0\": ";
  EXPECT_FALSE(LoadPrimusDump(Folder()));
  Write("pp_rank_0.json", good);
  Write("config.json", {{"pp_size", 2}});
  EXPECT_FALSE(LoadPrimusDump(Folder()));
  EXPECT_FALSE(LoadPrimusDump("/nonexistent"));
}

}  // namespace
}  // namespace penstock
