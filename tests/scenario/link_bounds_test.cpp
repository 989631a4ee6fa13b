// No step is faster than its bytes on any link, nor than its FLOPs, at the full rate of the device.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "base/index.h"
#include "cost_model/stage_layers.h"
#include "model_spec/layout.h"
#include "scenario/estimate/estimate_step.h"
#include "tests/results.h"

namespace penstock {
namespace {

// Seconds that a rank needs at least in a step.
struct LeastTimes {
  double flops = 0, node = 0, network = 0;

  void operator+=(const LeastTimes& other) {
    flops += other.flops;
    node += other.node;
    network += other.network;
  }
};

// Whether forwards and backwards overlap: a rank then has two stages.
bool HasPairs(const Scenario& scenario) { return scenario.schedules.front().name == "dualpipev"; }

// The fastest format of the device.
double Peak(const Device& device, Precision precision) {
  return std::max(device.flops(precision), device.flops(Precision::kBf16));
}

// Adds the messages of a layer of one microbatch. Each rank sends to all others of its group.
void AddMessages(const ModelOnCluster& model, const Kernels& kernels, double times,
                 LeastTimes& least) {
  const int linked = model.cluster.linked_devices();
  const Device& device = model.cluster.device;
  const auto add = [&](double bytes, const Mesh& mesh, Axis axis) {
    if (bytes == 0) return;
    const std::int64_t stride = mesh.Stride(axis), span = mesh.Span(axis);
    if (span <= linked) {
      least.node += times * bytes / device.link_bandwidth;
    } else if (stride >= linked) {
      least.network += times * bytes / device.network_bandwidth;
    }
  };
  for (const KernelCost& kernel : kernels) {
    add(kernel.sent, model.mesh(), Axis::kTensor);
    add(kernel.shared, model.mesh(), Axis::kContext);
    add(kernel.routed, model.expert_mesh(), Axis::kExpert);
    add(kernel.gathered, model.expert_mesh(), Axis::kExpert);
  }
}

// Adds what replicas send once per step, at 2 bytes per weight and gradient (quantized weights: 1).
void AddShards(const ModelOnCluster& model, const ParameterCount& count, LeastTimes& least) {
  const int linked = model.cluster.linked_devices();
  const Device& device = model.cluster.device;
  const Mesh mesh = model.mesh(), experts = model.expert_mesh();
  const double gathered = IsQuantized(model.batch.precision) ? 1 : 2;
  const double bytes = model.zero == 0 ? 4 : gathered + 2;
  // The ranks that divide the tokens of samples may be replicas, too.
  const bool with_context = model.batch.profile.get().shards_over_context;
  const int contexts = with_context ? mesh.size(Axis::kContext) : 1;
  for (const auto& [parameters, replicas, stride] :
       {std::tuple(count.others, contexts * mesh.size(Axis::kData),
                   mesh.Stride(with_context ? Axis::kContext : Axis::kData)),
        std::tuple(count.of_experts, experts.size(Axis::kData), experts.Stride(Axis::kData))}) {
    if (replicas == 1) continue;
    const double all = parameters * bytes;
    if (stride >= linked) {
      least.network += all * (replicas - 1) / replicas / device.network_bandwidth;
    } else if (replicas * stride <= linked) {
      least.node += all * (replicas - 1) / replicas / device.link_bandwidth;
    } else if (replicas * stride % linked == 0 && linked % stride == 0) {
      const double in_node = static_cast<double>(linked) / static_cast<double>(stride);
      const double nodes = replicas / in_node;
      least.network += all / in_node * (nodes - 1) / nodes / device.network_bandwidth;
    }
  }
}

LeastTimes LeastOf(const ModelOnCluster& model, const LayerRange& layers, int microbatches) {
  LeastTimes least;
  const double peak = Peak(model.cluster.device, model.batch.precision);
  for (const StagePart& part : PartsOfStage(model.shape, layers, model.batch, model.recompute)) {
    const double times = static_cast<double>(part.count) * microbatches;
    for (const Kernels* kernels :
         {&part.work.forward, &part.work.backward_input, &part.work.backward_weight}) {
      AddMessages(model, *kernels, times, least);
      for (const KernelCost& kernel : *kernels) {
        least.flops += times * (kernel.flops - kernel.skipped) / peak;
      }
    }
  }
  AddShards(model, ParametersOfStage(model.shape, layers, model.batch), least);
  return least;
}

class LinkBounds : public testing::Test {
 protected:
  template <class T>
  T Choose(std::initializer_list<T> values) {
    return *(values.begin() + static_cast<std::ptrdiff_t>(random_() % values.size()));
  }
  // A device with links of a random rate.
  std::string RandomDevice() {
    std::ofstream(path_) << "like: "
                         << Choose<std::string>({"h100", "h200", "gb200", "mi300x", "l40s"})
                         << "\nlink_bandwidth: " << Choose<std::string>({"1e9", "3e10", "4.5e11"})
                         << "\nnetwork_bandwidth: "
                         << Choose<std::string>({"1e8", "1.25e9", "5e10"}) << "\n";
    return path_;
  }
  Scenario RandomScenario() {
    Scenario scenario;
    const bool has_experts = random_() % 2 == 0;
    scenario.model = has_experts ? Choose<std::string>({"mixtral-8x7b", "qwen3-30b-a3b"})
                                 : Choose<std::string>({"llama-3-8b", "llama-2-7b", "gpt2-xl"});
    // Files are kept by their path.
    path_ = testing::TempDir() + "penstock_link_" + std::to_string(getpid()) + "_" +
            std::to_string(files_++) + ".yaml";
    scenario.device = RandomDevice();
    scenario.implementation = Choose<std::string>(
        {"penstock", "torch", "torch-compile", "megatron", "transformer-engine"});
    scenario.precision = "bf16";
    if (scenario.implementation == "transformer-engine") {
      scenario.precision = Choose<std::string>({"bf16", "fp8"});
      scenario.dispatcher = Choose<std::string>({"all-to-all", "all-gather"});
      scenario.cuda_graphs = Choose<std::string>({"none", "full"});
    }
    scenario.nodes = Choose<std::string>({"1x8", "2x8", "4x8"});
    scenario.tensor = scenario.model == "gpt2-xl" ? 1 : Choose({1, 2, 8});
    scenario.context = Choose({1, 2});
    scenario.ranks = Choose({1, 2});
    const int devices = 8 * (scenario.nodes->front() - '0');
    scenario.data = devices / (*scenario.tensor * *scenario.context * *scenario.ranks);
    if (scenario.data == 0) return RandomScenario();
    if (has_experts) scenario.expert = std::min(Choose({1, 2, 8}), *scenario.data);
    scenario.zero = *scenario.data * *scenario.context > 1 ? Choose({0, 1}) : 0;
    scenario.sequence = scenario.model == "gpt2-xl" ? 1024 : Choose({1024, 4096});
    scenario.microbatches = Choose({2, 5});
    for (std::optional<double>* const part :
         {&scenario.hidden_communication, &scenario.hidden_gradients}) {
      if (random_() % 2 == 0) *part = Choose({0.0, 0.5, 1.0});
    }
    if (random_() % 3 == 0) scenario.time_factor = Choose({0.2, 1.0, 2.0});
    if (random_() % 3 == 0) scenario.flops_efficiency = 1;
    if (random_() % 3 == 0) scenario.recompute = "full";
    Candidate candidate;
    candidate.name = scenario.ranks == 2 && random_() % 2 == 0 ? "dualpipev" : "1f1b";
    scenario.schedules = {candidate};
    return scenario;
  }
  void TearDown() override {
    for (int i = 0; i < files_; ++i) {
      std::filesystem::remove(testing::TempDir() + "penstock_link_" + std::to_string(getpid()) +
                              "_" + std::to_string(i) + ".yaml");
    }
  }

  std::mt19937 random_{1};
  std::string path_;
  int files_ = 0;
};

TEST_F(LinkBounds, NoStepIsShorterThanItsBytesOrFlops) {
  int priced = 0;
  for (int i = 0; i < 600; ++i) {
    const Scenario scenario = RandomScenario();
    const auto model = scenario.Load();
    if (!model) continue;
    const auto step = EstimateStep(scenario);
    if (!step) continue;
    ++priced;
    const int ranks = *scenario.ranks, chunks = HasPairs(scenario) ? 2 : 1;
    const auto stages = ValueOf(SplitLayers(model->shape.layers, ranks * chunks));
    for (int rank = 0; rank < ranks; ++rank) {
      LeastTimes least = LeastOf(*model, stages[Index(rank)], *scenario.microbatches);
      if (chunks == 2) {
        least += LeastOf(*model, stages[Index(2 * ranks - 1 - rank)], *scenario.microbatches);
      }
      const double time = step->step_time * (1 + 1e-9);
      const std::string what =
          fmt::format("{} {} {} nodes {} tensor {} context {} ranks {} data {} expert {} zero {}",
                      *scenario.model, *scenario.implementation, *scenario.precision,
                      *scenario.nodes, *scenario.tensor, *scenario.context, *scenario.ranks,
                      *scenario.data, scenario.expert.value_or(1), *scenario.zero);
      EXPECT_LE(least.flops, time) << what;
      EXPECT_LE(least.node, time) << what;
      EXPECT_LE(least.network, time) << what;
    }
  }
  EXPECT_GT(priced, 300);
}

// A message per microbatch and direction, on one link each.
TEST_F(LinkBounds, MessagesBetweenStagesShareTheirLink) {
  for (const char* schedule : {"gpipe", "1f1b", "zb-h1"}) {
    Scenario scenario;
    scenario.model = "llama-3-8b";
    path_ = testing::TempDir() + "penstock_link_" + std::to_string(getpid()) + "_0.yaml";
    files_ = 1;
    std::ofstream(path_) << "{like: h100, network_bandwidth: 1e8}";
    scenario.device = path_;
    scenario.nodes = "4x1";
    scenario.microbatches = 16;
    Candidate candidate;
    candidate.name = schedule;
    scenario.schedules = {candidate};
    const double message = 2.0 * 4096 * 4096 / 1e8;
    EXPECT_GE(EstimateStep(scenario)->step_time, 16 * message) << schedule;
  }
}

}  // namespace
}  // namespace penstock
