#include "train/check/device_check.h"

#include <ATen/Parallel.h>
#include <torch/version.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <random>
#include <vector>

#include "base/exception_line.h"
#include "config/run_schedule.h"
#include "graph/device/device_plugin.h"
#include "graph/device/device_queue.h"
#include "graph/run/program_replays.h"
#include "model_spec/model_config.h"
#include "runtime/executor/run.h"
#include "train/run/pipeline.h"

namespace penstock {
namespace {

constexpr double kRounding = 1e-4, kBf16Rounding = 2e-2;

struct CheckCase {
  std::string name;
  std::vector<std::string> settings;
  double limit = kRounding;
  std::vector<std::string> on_device = {};  // further settings, there alone
};

std::vector<CheckCase> Cases() {
  std::vector<CheckCase> cases;
  for (const std::string_view model : ModelNames()) {
    cases.push_back({fmt::format("model {}", model), {fmt::format("model.name={}", model)}});
  }
  for (const char* const schedule : {"zb-h1", "interleaved", "zbv", "dualpipev", "seq1f1b"}) {
    cases.push_back({fmt::format("schedule {}", schedule), {fmt::format("schedule={}", schedule)}});
    const std::string_view name = schedule;
    if (name == "seq1f1b") cases.back().settings.emplace_back("slices=2");
    if (name != "seq1f1b" && name != "zb-h1") cases.back().settings.emplace_back("chunks=2");
  }
  cases.push_back({"bf16", {"precision=bf16"}, kBf16Rounding});
  cases.push_back({"recompute", {"recompute.hold=least"}});
  cases.push_back({"clipping, post-validation", {"clip=0.5", "post_validation=true"}});
  cases.push_back({"replicas, ZeRO 2", {"parallel.data=2", "parallel.zero=2"}});
  cases.push_back({"replicas, ZeRO 3", {"parallel.data=2", "parallel.zero=3"}});
  cases.push_back({"sharded vocabulary", {"shard_vocabulary=true"}});
  cases.push_back(
      {"expert parallelism", {"model.name=qwen3_moe", "parallel.data=2", "parallel.expert=2"}});
  return cases;
}

// What needs the device's plugin.
std::vector<CheckCase> PluginCases() {
  const std::vector<std::string> graphs = {"device_graphs=true"};
  return {{"graphs, 1f1b", {"schedule=1f1b"}, kRounding, graphs},
          {"graphs, zbv", {"schedule=zbv", "chunks=2"}, kRounding, graphs},
          {"graphs, bf16", {"precision=bf16"}, kBf16Rounding, graphs},
          {"parts of the device", {}, kRounding, {"device_parts=true"}}};
}

struct CheckedRun {
  std::vector<double> losses;
  double seconds = 0;        // that passed
  double event_seconds = 0;  // of all steps, by the trace
};

// Checks that each rank that may record graphs has run some.
Status CheckGraphs(const Pipeline& pipeline) {
  for (const auto& recorder : pipeline.recorders) {
    if (recorder == nullptr || recorder->replays > 0) continue;
    return MakeError(ErrorCode::kUnavailable, "no graph was run: {}",
                     fmt::join(recorder->refusals, "; "));
  }
  return {};
}

Result<CheckedRun> TrainOn(const std::string& device, const CheckCase& of) {
  std::vector<std::string> settings = {
      "dim=32",  "heads=2", "layers=8", "sequence=16", "batch=2",    "microbatches=4",
      "ranks=2", "steps=3", "warmup=1", "dropout=0",   "fuse=false", "device=" + device};
  settings.insert(settings.end(), of.settings.begin(), of.settings.end());
  if (device != "cpu") {
    settings.insert(settings.end(), of.on_device.begin(), of.on_device.end());
  }
  PENSTOCK_TRY(TrainConfig config, ParseTrainConfig("", "check-device", settings));
  std::mt19937 random(1);
  std::vector<std::uint8_t> text(1000);
  for (std::uint8_t& byte : text) byte = static_cast<std::uint8_t>(random() % 64);
  config.model.vocabulary = 64;
  PENSTOCK_TRY(const Schedule schedule, ChooseSchedule(config, /*cores=*/2));
  const Sampler sampler(text, config.model.sequence, config.seed);
  PENSTOCK_TRY(Pipeline pipeline,
               BuildPipeline(config, schedule, MakeBatchSource(sampler, config)));
  PENSTOCK_TRY(Trace trace, Trace::Make(schedule));
  CheckedRun run;
  RunOptions options;
  options.steps = config.steps;
  options.update = UpdateRuleOf(config.optimizer);
  options.update.zero = pipeline.zero;
  options.trace = &trace;
  options.on_thread_start = [](int) { at::set_num_threads(1); };
  const int last = schedule.placement.rank_of(schedule.stages() - 1);
  options.on_step = [&](int rank, std::int64_t) {
    if (rank == last) run.losses.push_back(pipeline.StepLoss());
  };
  const auto start = std::chrono::steady_clock::now();
  PENSTOCK_TRY_STATUS(RunRanks(schedule, pipeline.pointers(), options));
  run.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  run.event_seconds = MeasureRun(trace).makespan;
  PENSTOCK_TRY_STATUS(CheckGraphs(pipeline));
  return run;
}

// The same, with what PyTorch throws as an error: for example, an op without a kernel.
Result<CheckedRun> TryToTrain(const std::string& device, const CheckCase& of) {
  try {
    return TrainOn(device, of);
  } catch (const std::exception& error) {
    return InvalidArgument("{}", ExceptionLine(error));
  }
}

double DifferenceOf(const std::vector<double>& expected, const std::vector<double>& found) {
  double largest = expected.size() == found.size() ? 0 : INFINITY;
  for (std::size_t i = 0; i < std::min(expected.size(), found.size()); ++i) {
    const double difference = std::abs(found[i] - expected[i]) / std::abs(expected[i]);
    largest = std::isnan(difference) ? INFINITY : std::max(largest, difference);
  }
  return largest;
}

DeviceCheck Compare(const std::string& device, const CheckCase& of) {
  DeviceCheck check{of.name, 0, of.limit};
  const auto expected = TryToTrain("cpu", of);
  const auto found = TryToTrain(device, of);
  if (!expected || !found) {
    check.error = (found ? expected : found).error().line();
    return check;
  }
  check.difference = DifferenceOf(expected->losses, found->losses);
  check.seconds = found->seconds;
  return check;
}

// The events of a step lie within the time that passed.
DeviceCheck CheckTimes(const std::string& device) {
  DeviceCheck check{"times of events", 0, kRounding};
  const auto run = TryToTrain(device, {"times", {}});
  if (!run) {
    check.error = run.error().line();
    return check;
  }
  check.seconds = run->seconds;
  if (run->event_seconds <= 0 || run->event_seconds > run->seconds) {
    check.error = fmt::format("the device's events say {:.4f} s, but {:.4f} s passed",
                              run->event_seconds, run->seconds);
  }
  return check;
}

}  // namespace

std::string TorchVersion() { return TORCH_VERSION; }

Status CheckDevice(const std::string& device,
                   const std::function<void(const DeviceCheck&)>& report) {
  PENSTOCK_TRY(const c10::Device opened, OpenDevice(device));
  for (const CheckCase& each : Cases()) report(Compare(device, each));
  if (!opened.is_cpu() && OpenDevicePlugin(opened)) {
    for (const CheckCase& each : PluginCases()) report(Compare(device, each));
  }
  report(CheckTimes(device));
  return {};
}

}  // namespace penstock
