// Training on the test device is training on the CPU, bit for bit, and only events order it.
#include "train/train.h"

#include <ATen/Context.h>
#include <gmock/gmock.h>
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/files.h"
#include "schedule/catalog.h"
#include "schedule/text/text.h"
#include "simulate/pass_context.h"
#include "tests/engine/device/device.h"
#include "tests/engine/train/run/trained_model.h"
#include "tests/engine/train/sentences.h"
#include "tests/engine/train/temp_folder.h"
#include "tests/results.h"
#include "train/stage/stage_builder.h"

namespace penstock::testing {
namespace {

struct TrainCase {
  std::string name;
  std::vector<std::string> settings;  // of a configuration
  int updates = 1;                    // of a stage per step
  // The ops of experts add in another order than on the CPU, and the host reads counts of rows.
  bool has_experts = false;
};

TrainConfig ConfigOf(const TrainCase& of) {
  TrainConfig config = ParseTrainConfig("{}", "test", of.settings).value();
  MakeTiny(config);
  config.model.sequence = 6;
  config.model.layers = 8;
  return config;
}

// What the host waited for, apart from the ends of steps and of the run, and what it read.
struct HostWaits {
  std::vector<std::string> within_steps;
  int reads = 0;
};

HostWaits WaitsOf(const DeviceReport& report) {
  HostWaits waits;
  for (const std::string& each : report.host_operations) {
    if (each == "copy to the host") {
      ++waits.reads;
    } else if (each != "wait for an event" && each != "wait for a stream") {
      waits.within_steps.push_back(each);
    }
  }
  return waits;
}

void ExpectNear(const TrainedModel& expected, const TrainedModel& trained) {
  for (std::size_t step = 0; step < expected.losses.size(); ++step) {
    EXPECT_NEAR(expected.losses[step], trained.losses[step], 1e-4);
  }
  for (const auto& [name, value] : expected.parameters) {
    EXPECT_TRUE(at::allclose(value, trained.parameters.at(name).cpu(), 0, 1e-4)) << name;
  }
}

class TrainOnDevice : public ::testing::TestWithParam<TrainCase> {
 protected:
  void SetUp() override { at::globalContext().setSDPUseFlash(false); }

  static DeviceReport ExpectAsOnTheCpu(bool graphs);
};

DeviceReport TrainOnDevice::ExpectAsOnTheCpu(bool graphs) {
  TrainConfig config = ConfigOf(GetParam());
  const TrainedModel expected = TrainWith(config);
  config.device = "test_device";
  config.device_graphs = graphs;
  TakeReport();
  const TrainedModel trained = TrainWith(config);
  DeviceReport report = TakeReport();
  EXPECT_TRUE(report.races.empty()) << report.races.size() << ": " << report.races.front();
  const HostWaits waits = WaitsOf(report);
  EXPECT_TRUE(waits.within_steps.empty()) << waits.within_steps.front();
  // The norms of each stage's gradients, with tensor ranks also those of whole matrices, and the
  // losses, of all replicas.
  const std::size_t norms = config.parallel.tensor > 1 ? 2 : 1;
  const std::size_t most = Index(Planes(config.parallel).ranks()) *
                           (trained.saved.size() * norms * Index(GetParam().updates) + 2);
  if (GetParam().has_experts) {
    ExpectNear(expected, trained);
    return report;
  }
  EXPECT_LE(waits.reads, static_cast<int>(trained.losses.size() * most));
  EXPECT_EQ(expected.losses, trained.losses);
  for (const auto& [name, value] : expected.parameters) {
    EXPECT_TRUE(at::equal(value, trained.parameters.at(name).cpu())) << name;
  }
  return report;
}

TEST_P(TrainOnDevice, IsAsOnTheCpu) { ExpectAsOnTheCpu(/*graphs=*/false); }

// With recorded forwards and backwards, except graphs that draw random numbers or whose numbers of
// rows the host reads.
TEST_P(TrainOnDevice, IsAsOnTheCpuWithGraphs) {
  const DeviceReport report = ExpectAsOnTheCpu(/*graphs=*/true);
  const bool has_dropout = std::ranges::any_of(GetParam().settings, [](const std::string& setting) {
    return setting.starts_with("model.dropout");
  });
  EXPECT_EQ(report.replays > 0, !has_dropout && !GetParam().has_experts);
}

INSTANTIATE_TEST_SUITE_P(
    Runs, TrainOnDevice,
    ::testing::Values(
        TrainCase{"gpipe", {"pipeline.schedule=gpipe"}},
        TrainCase{"one_f_one_b", {"pipeline.schedule=1f1b"}},
        TrainCase{"zb_h1", {"pipeline.schedule=zb-h1"}},
        TrainCase{"zbv", {"pipeline.schedule=zbv", "pipeline.chunks=2"}},
        TrainCase{"dualpipev", {"pipeline.schedule=dualpipev", "pipeline.chunks=2"}},
        TrainCase{"interleaved", {"pipeline.chunks=2"}},
        TrainCase{"dualpipe", {"pipeline.schedule=dualpipe", "pipeline.ranks=4"}},
        TrainCase{"chimera", {"pipeline.schedule=chimera", "pipeline.ranks=4"}},
        TrainCase{"pipedream", {"pipeline.schedule=pipedream"}, 8},
        TrainCase{"naive", {"pipeline.schedule=naive"}},
        TrainCase{"looped_bfs", {"pipeline.schedule=looped-bfs", "pipeline.chunks=2"}},
        TrainCase{"zb_h2", {"pipeline.schedule=zb-h2"}},
        TrainCase{"zb_auto", {"pipeline.schedule=zb-auto"}},
        TrainCase{"interleaved_zb", {"pipeline.schedule=interleaved-zb", "pipeline.chunks=2"}},
        TrainCase{"zbv_formatted", {"pipeline.schedule=zbv-formatted", "pipeline.chunks=2"}},
        TrainCase{"v_half", {"pipeline.schedule=v-half", "pipeline.chunks=2"}},
        TrainCase{"v_min", {"pipeline.schedule=v-min", "pipeline.chunks=2"}},
        TrainCase{"v_1f1b", {"pipeline.schedule=v-1f1b", "pipeline.chunks=2"}},
        TrainCase{"v_auto", {"pipeline.schedule=v-auto", "pipeline.chunks=2"}},
        TrainCase{"hanayo", {"pipeline.schedule=hanayo", "pipeline.chunks=2"}},
        TrainCase{"pipedream_2bw", {"pipeline.schedule=pipedream-2bw"}},
        TrainCase{"slices", {"pipeline.schedule=seq1f1b", "pipeline.slices=2"}},
        TrainCase{"replicas", {"parallel.data=2"}},
        TrainCase{"bf16", {"precision=bf16", "pipeline.schedule=zb-h1"}},
        TrainCase{"bf16_gradients", {"optimizer.gradient_dtype=bf16"}},
        TrainCase{"dropout", {"model.dropout=0.1"}},
        TrainCase{"recompute", {"recompute.hold=least"}}, TrainCase{"clip", {"optimizer.clip=1"}},
        TrainCase{"post_validation", {"optimizer.clip=1", "optimizer.post_validation=true"}},
        TrainCase{"tied", {"model.tied=true"}}, TrainCase{"gpt2", {"model.name=gpt2"}},
        TrainCase{"gpt2_dropout", {"model.name=gpt2", "model.dropout=0.1"}},
        TrainCase{"ema", {"optimizer.ema=0.9"}},
        TrainCase{"zero_1", {"parallel.data=2", "parallel.zero=1"}},
        TrainCase{"zero_2", {"parallel.data=2", "parallel.zero=2", "optimizer.clip=1"}},
        TrainCase{"zero_3", {"parallel.data=2", "parallel.zero=3", "pipeline.schedule=zb-h1"}},
        TrainCase{"zero_3_bf16", {"parallel.data=2", "parallel.zero=3", "precision=bf16"}},
        TrainCase{"zero_1_dualpipe",
                  {"pipeline.schedule=dualpipe", "pipeline.ranks=4", "parallel.zero=1",
                   "optimizer.gradient_dtype=bf16"}},
        TrainCase{"vocabulary", {"parallel.shard_vocabulary=true"}},
        TrainCase{"vocabulary_bf16",
                  {"parallel.shard_vocabulary=true", "precision=bf16", "pipeline.schedule=zbv",
                   "pipeline.chunks=2"}},
        TrainCase{"document_mask", {"data.document_mask=true"}},
        TrainCase{"experts", {"model.name=qwen3_moe"}, 1, true},
        TrainCase{"expert_parallel",
                  {"model.name=qwen3_moe", "parallel.data=2", "parallel.expert=2"},
                  1,
                  true},
        TrainCase{"expert_pairs",
                  {"model.name=deepseek_v3", "parallel.data=2", "parallel.expert=2",
                   "pipeline.schedule=dualpipev", "pipeline.chunks=2", "parallel.zero=2"},
                  1,
                  true}),
    [](const auto& info) { return info.param.name; });

// Ranks that divide the matrices, and share a key and value head, or the tokens.
class DividedOnDevice : public TrainOnDevice {};

TEST_P(DividedOnDevice, IsAsOnTheCpu) { ExpectAsOnTheCpu(/*graphs=*/false); }

std::vector<TrainCase> DividedCases() {
  const std::vector<std::string> tensor = {"parallel.tensor=2", "model.kv_heads=1"};
  const std::vector<std::string> context = {"parallel.context=2"};
  std::vector<TrainCase> cases;
  const auto add = [&](const std::string& name, std::vector<std::string> settings,
                       const std::vector<std::string>& more) {
    settings.insert(settings.end(), more.begin(), more.end());
    cases.push_back({name, std::move(settings)});
  };
  for (const auto& [division, settings] : {std::pair("tensor", tensor), {"context", context}}) {
    for (const auto& [schedule, chunks] :
         {std::pair("1f1b", "1"), {"zb-h1", "1"}, {"zbv", "2"}, {"dualpipev", "2"}}) {
      for (int zero = 0; zero <= 3; ++zero) {
        std::string name = fmt::format("{}_{}_zero_{}", division, schedule, zero);
        std::ranges::replace(name, '-', '_');
        add(name, settings,
            {fmt::format("pipeline.schedule={}", schedule),
             fmt::format("pipeline.chunks={}", chunks), "parallel.data=2",
             fmt::format("parallel.zero={}", zero), "optimizer.clip=0.1",
             zero % 2 == 0 ? "precision=f32" : "precision=bf16"});
      }
    }
    add(fmt::format("{}_post_validation", division), settings,
        {"pipeline.schedule=zb-h1", "optimizer.clip=0.1", "optimizer.post_validation=true",
         "recompute.hold=least", "model.dropout=0.1"});
  }
  for (const char* const exchange : {"ulysses", "ring"}) {
    add(exchange, context, {fmt::format("parallel.context_exchange={}", exchange)});
  }
  add("both", tensor,
      {"parallel.context=2", "model.tied=true", "parallel.data=2", "parallel.zero=2"});
  add("gather_again", tensor, {"parallel.gather_again=true", "pipeline.schedule=zb-h1"});
  add("dualpipe", tensor, {"pipeline.schedule=dualpipe", "pipeline.ranks=4", "parallel.zero=1"});
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Runs, DividedOnDevice, ::testing::ValuesIn(DividedCases()),
                         [](const auto& info) { return info.param.name; });

TEST(PartsOfDevice, TrainAsTheCpu) {
  at::globalContext().setSDPUseFlash(false);
  TrainConfig config = ConfigOf({"parts", {}});
  const TrainedModel expected = TrainWith(config);
  config.device = "test_device";
  config.device_parts = true;
  TakeReport();
  EXPECT_EQ(expected.losses, TrainWith(config).losses);
  EXPECT_TRUE(TakeReport().races.empty());
}

TEST(PartsOfDevice, AreRefusedWithRanksThatDivideLayers) {
  TrainConfig config = ConfigOf({"parts", {"parallel.tensor=2"}});
  config.device = "test_device";
  config.device_parts = true;
  const Schedule schedule = ChooseSchedule(config, 2).value();
  EXPECT_EQ(
      LineOf(BuildPipeline(config, schedule, {})),
      "device_parts: the ranks that parallel.tensor or parallel.context adds have no parts of "
      "the device: set it to false");
}

TEST(PartsOfDevice, AreRefusedWhereThereAreNone) {
  ScheduleParams params;
  params.ranks = params.microbatches = 8;  // the test device has four parts
  const Schedule schedule = Generate("1f1b", params).value();
  const auto error = [&](const DeviceUse& use) {
    return LineOf(StageBuilder::Make(schedule, {}, "", LocalRanks(params.ranks), nullptr, use));
  };
  const c10::Device device("test_device:0");
  EXPECT_THAT(error({device, false, true}),
              ::testing::HasSubstr("device_parts: the test device has 4 parts"));
  EXPECT_THAT(error({c10::kCPU, false, true}), ::testing::HasSubstr("device_parts needs a device"));
  EXPECT_THAT(error({c10::kCPU, true, false}),
              ::testing::HasSubstr("device_graphs needs a device"));
}

// OFFLOAD, which copies activations to the host and back on streams of its own.
TEST(OffloadOnDevice, IsAsOnTheCpu) {
  at::globalContext().setSDPUseFlash(false);
  TempFolder folder;
  for (const char* const algorithm : {"1f1b", "zb-h1"}) {
    for (const auto& passes : {std::vector<std::string>{"offload"}, {"recompute", "offload"}}) {
      SCOPED_TRACE(fmt::format("{} {}", algorithm, fmt::join(passes, " ")));
      Schedule schedule = Generate(algorithm, {.ranks = 2, .microbatches = 4}).value();
      Costs costs = Costs::Uniform(schedule.placement, schedule.slices, 1, 1, 1);
      costs.offload = costs.reload = 0.1;
      schedule = RunSchedulePasses(std::move(schedule), passes, SimulatedContext(costs)).value();
      TrainConfig config = ConfigOf({"offload", {}});
      config.pipeline.csv = folder.Write("schedule.csv", WriteCsv(schedule));
      const TrainedModel expected = TrainWith(config);
      config.device = "test_device";
      SetDelays(5, /*seed=*/1);
      TakeReport();
      const TrainedModel trained = TrainWith(config);
      const DeviceReport report = TakeReport();
      EXPECT_TRUE(report.races.empty()) << report.races.front();
      EXPECT_TRUE(WaitsOf(report).within_steps.empty());
      EXPECT_EQ(expected.losses, trained.losses);
      for (const auto& [name, value] : expected.parameters) {
        EXPECT_TRUE(at::equal(value, trained.parameters.at(name).cpu())) << name;
      }
      SetDelays(0, 0);
    }
  }
}

// A RELOAD that directly follows its OFFLOAD waits until the host has the activations.
TEST(OffloadOnDevice, MayBeReloadedAtOnce) {
  at::globalContext().setSDPUseFlash(false);
  TempFolder folder;
  TrainConfig config = ConfigOf({"offload", {}});
  config.offload.pool = folder.path();
  config.pipeline.csv =
      folder.Write("schedule.csv", "0F0,0OFFLOAD0,0RELOAD0,0B0,0F1,0OFFLOAD1,0RELOAD1,0B1\n");
  const TrainedModel expected = TrainWith(config);
  config.device = "test_device";
  for (const int seed : {1, 2, 3}) {
    SetDelays(5, seed);
    TakeReport();
    const TrainedModel trained = TrainWith(config);
    EXPECT_TRUE(TakeReport().races.empty());
    EXPECT_EQ(expected.losses, trained.losses);
    for (const auto& [name, value] : expected.parameters) {
      EXPECT_TRUE(at::equal(value, trained.parameters.at(name).cpu())) << name;
    }
    SetDelays(0, 0);
  }
}

using LogFile = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;
LogFile OpenLog(const TempFolder& folder) {
  return {std::fopen((folder / "log").c_str(), "w"), std::fclose};
}

// `penstock train`, `eval` and `generate` as a whole, with a checkpoint from which a run continues.
TEST(CommandsOnDevice, AreAsOnTheCpu) {
  at::globalContext().setSDPUseFlash(false);
  TempFolder folder;
  const std::string text = folder.Write("text", Sentences());
  std::map<std::string, EvalSummary> evaluated;
  std::map<std::string, std::string> written;
  for (const std::string device : {"cpu", "test_device"}) {
    std::vector<std::string> settings = TinySettings(text, folder / "runs");
    settings.insert(settings.end(),
                    {"name=" + device, "device=" + device, "max_memory=none", "checkpoint.every=2",
                     "validation.freq=2", "optimizer.ema=0.9"});
    const LogFile log = OpenLog(folder);
    TrainOptions quiet = {.log = log.get()};
    EXPECT_TRUE(Succeeds(Train(ParseTrainConfig("", "none", settings).value(), quiet)));
    settings.insert(settings.end(), {"steps=6", "resume=auto"});
    EXPECT_TRUE(Succeeds(Train(ParseTrainConfig("", "none", settings).value(), quiet)));
    const auto loss = ValueOf(Evaluate(folder / "runs/" + device, {}, /*ema=*/true, device));
    evaluated[device] = loss;
    const auto passage =
        ValueOf(GenerateText(folder / "runs/" + device, {.tokens = 20, .device = device}));
    written[device] = passage.text;
  }
  EXPECT_EQ(evaluated["cpu"].step, 6);
  EXPECT_DOUBLE_EQ(evaluated["cpu"].held_out_loss, evaluated["test_device"].held_out_loss);
  EXPECT_EQ(written["cpu"], written["test_device"]);
}

// Returns the log of a run with graphs and parts of the device, and with one more setting.
std::string LogOfRun(const std::string& setting) {
  at::globalContext().setSDPUseFlash(false);
  TempFolder folder;
  std::vector<std::string> settings =
      TinySettings(folder.Write("text", Sentences()), folder / "runs");
  settings.insert(settings.end(), {"device=test_device", "device_graphs=true", "device_parts=true",
                                   "model.name=gpt2", setting});
  const LogFile log = OpenLog(folder);
  TrainOptions options = {.log = log.get()};
  EXPECT_TRUE(Succeeds(Train(ParseTrainConfig("", "none", settings).value(), options)));
  std::fflush(log.get());
  return ReadFile(folder / "log").value();
}

TEST(CommandsOnDevice, LogMemoryAndGraphs) {
  const std::string lines = LogOfRun("model.dropout=0");
  EXPECT_THAT(lines,
              ::testing::ContainsRegex("device test_device:0: [0-9.]+ [KM]iB allocated at most\n"));
  EXPECT_THAT(lines, ::testing::HasSubstr("train on test_device:0, one of 2 such devices"));
  EXPECT_THAT(lines,
              ::testing::ContainsRegex("rank 0: graphs: [1-9][0-9]*, runs of graphs: [1-9]"));
  EXPECT_THAT(LogOfRun("model.dropout=0.1"),
              ::testing::HasSubstr("rank 0 has no graph of forward: it draws random numbers"));
}

// The tests above would report an order that is missing: each wait for an event, and each recorded
// use, is left out of a step in turn.
class OrderOnDevice : public TrainOnDevice {
 protected:
  static DeviceReport Step() {
    TrainConfig config = ConfigOf(GetParam());
    config.steps = 1;
    config.pipeline.microbatches = 4;
    config.device = "test_device";
    TakeReport();
    {  // a step that reads too early may fail, too
      ::testing::TestPartResultArray ignored;
      const ::testing::ScopedFakeTestPartResultReporter reporter(
          ::testing::ScopedFakeTestPartResultReporter::INTERCEPT_ONLY_CURRENT_THREAD, &ignored);
      TrainWith(config);
    }
    return TakeReport();
  }
  void TearDown() override {
    DropWait(-1);
    DropDefaultWaits(false);
    DropRecordedUse(-1);
  }
};

// Whether the wait of a host for a norm makes another wait superfluous depends on the time. Of the
// waits for both messages of an overlapped pair, the later one can include the other.
TEST_P(OrderOnDevice, NeedsEachWaitAndEachUse) {
  const DeviceReport whole = Step();
  EXPECT_TRUE(whole.races.empty());
  EXPECT_GE(whole.waits, 6);
  EXPECT_GE(whole.recorded_uses, 6);
  DropDefaultWaits(true);
  EXPECT_FALSE(Step().races.empty()) << "the waits for the default stream";
  DropDefaultWaits(false);
  for (std::int64_t n = 0; n < whole.waits; ++n) {
    DropWait(n);
    const DeviceReport report = Step();
    EXPECT_TRUE(!report.dropped || report.needless || !report.races.empty())
        << "wait " << n << " of " << whole.waits;
  }
  DropWait(-1);
  for (std::int64_t n = 0; n < whole.recorded_uses; ++n) {
    DropRecordedUse(n);
    const DeviceReport report = Step();
    EXPECT_TRUE(!report.dropped || !report.races.empty())
        << "use " << n << " of " << whole.recorded_uses;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Runs, OrderOnDevice,
    ::testing::Values(TrainCase{"one_f_one_b", {"pipeline.schedule=1f1b"}},
                      TrainCase{"zb_h1", {"pipeline.schedule=zb-h1"}},
                      TrainCase{"zbv", {"pipeline.schedule=zbv", "pipeline.chunks=2"}},
                      TrainCase{"dualpipev", {"pipeline.schedule=dualpipev", "pipeline.chunks=2"}},
                      TrainCase{"interleaved", {"pipeline.chunks=2"}}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace penstock::testing
