// src/cost_model prices the collectives that the graphs of tensor ranks have: as many calls, which
// send as many bytes.
#include <gtest/gtest.h>

#include "base/index.h"
#include "config/replicas.h"
#include "cost_model/implementations/penstock_collectives.h"
#include "graph/capture/shapes_only.h"
#include "graph/ir/ir.h"
#include "graph/ops/collective.h"
#include "model/model.h"
#include "model/tensor_parallel.h"
#include "model_spec/model_spec.h"
#include "tests/cost_model/work_of_stage.h"
#include "tests/results.h"
#include "train/compiled/compile_stages.h"

namespace penstock {
namespace {

constexpr double kMasks = 0.01;

struct Traffic {
  int calls = 0;
  double sent = 0;  // bytes that a rank sends to the others

  bool operator==(const Traffic&) const = default;
};

std::ostream& operator<<(std::ostream& out, const Traffic& traffic) {
  return out << traffic.calls << " calls, " << traffic.sent << " bytes";
}

double BytesIn(const Graph& graph, ValueId value) {
  return static_cast<double>(BytesOf(graph.value(value).type));
}

Traffic TrafficOf(const Graph& graph, int group, int ranks) {
  Traffic traffic;
  for (const Node& node : graph.nodes) {
    if (!IsCollective(node) || GroupOf(node) != group) continue;
    std::string_view name = node.op.operator_name().name;
    if (name.ends_with("_wait")) continue;
    if (name.ends_with("_start")) name.remove_suffix(std::string_view("_start").size());
    const double input = BytesIn(graph, std::get<ValueId>(node.arguments.front()));
    const double whole = name.ends_with("all_gather") ? ranks * input : input;
    const int times = name.ends_with("all_reduce") ? 2 : 1;
    const bool to_one_rank = name.ends_with("all_to_all_uneven");  // of a ring
    ++traffic.calls;
    traffic.sent += to_one_rank ? input : times * whole * (ranks - 1) / ranks;
  }
  return traffic;
}

Traffic TrafficOf(const Kernels& kernels, double KernelCost::*sent) {
  Traffic traffic;
  for (const KernelCost& kernel : kernels) {
    if (kernel.*sent == 0) continue;
    traffic.calls += kernel.collectives;
    traffic.sent += kernel.*sent;
  }
  return traffic;
}

using ModelOptionTexts = decltype(ModelConfig::options);

struct OwnModel {
  const char* name;
  ModelOptionTexts options;
};

const std::vector<OwnModel>& OwnModels() {
  static const ModelOptionTexts experts = {
      {"experts", "4"}, {"top_k", "2"}, {"expert_hidden", "16"}};
  const auto with = [](ModelOptionTexts options) {
    options.insert(experts.begin(), experts.end());
    return options;
  };
  static const std::vector<OwnModel> models = {
      {"llama", {{"heads", "8"}, {"kv_heads", "2"}, {"tied", "true"}}},
      {"qwen3", {{"heads", "4"}, {"kv_heads", "4"}}},
      {"gpt2", {{"heads", "4"}, {"hidden", "32"}}},
      {"mixtral", with({{"heads", "4"}, {"kv_heads", "2"}})},
      {"qwen3_moe", with({{"heads", "4"}, {"kv_heads", "2"}})},
      {"deepseek_v3", with({{"heads", "8"}, {"query_rank", "0"}, {"shared_experts", "0"}})},
      {"deepseek_v3",
       with(
           {{"heads", "8"}, {"query_rank", "6"}, {"shared_experts", "1"}, {"dense_layers", "1"}})}};
  return models;
}

TrainConfig ConfigOf(const OwnModel& model, int tensor, bool divides_tokens) {
  TrainConfig config;
  config.model.name = model.name;
  config.model.options = model.options;
  config.model.dim = 32;
  config.model.layers = 6;
  config.model.sequence = 8;
  config.batch = 3;
  config.pipeline.ranks = config.pipeline.stages = 3;
  config.pipeline.schedule = "gpipe";
  config.parallel.tensor = tensor;
  config.parallel.sequence_parallel = divides_tokens;
  return config;
}

Microbatch BatchOf(const TrainConfig& config, const ModelShape& shape) {
  Microbatch batch{config.batch, config.model.sequence};
  batch.precision = config.precision == "bf16" ? Precision::kBf16 : Precision::kFp32;
  batch.tensor = config.parallel.tensor;
  batch.context = config.parallel.context;
  batch.context_exchange = WithPlane({}, config).context_exchange;
  batch.sequence_parallel = config.parallel.sequence_parallel && CanDivideTokens(shape, batch);
  batch.gather_again = config.parallel.gather_again;
  return batch;
}

// The elements that ranks add once per step, by the parts of the stage's parameters.
double SummedIn(const TrainConfig& config, LayerRange range) {
  range = WithPlane(range, config);
  const auto module = ValueOf(BuildStage(config.model, range));
  const auto parameters = module->named_parameters();
  double elements = 0;
  for (const auto& [name, part] : PartsOf(*module)) {
    if (part.copies == 1) continue;
    elements += static_cast<double>(parameters[name].numel() * part.parts);
  }
  return elements;
}

void ExpectPriced(const TrainConfig& config, double most_after_input = kMasks) {
  const ShapesOnly shapes_only;
  const ModelShape shape = ValueOf(ShapeOf(config.model));
  const Microbatch batch = BatchOf(config, shape);
  const auto stages = ValueOf(SplitLayers(shape.layers, config.pipeline.ranks));
  for (int i = 0; i < config.pipeline.ranks; ++i) {
    SCOPED_TRACE(fmt::format("stage {}", i));
    const LayerRange& stage = stages[Index(i)];
    const Work work = WorkOfStage(shape, stage, batch);
    const auto graphs = ValueOf(GraphsOfStage(config, i, {}));
    for (const auto& [group, ranks, sent] :
         {std::tuple(kTensorGroup, config.parallel.tensor, &KernelCost::sent),
          std::tuple(kContextGroup, config.parallel.context, &KernelCost::shared)}) {
      const auto expect = [&](const Kernels& kernels, const Graph& graph, const char* action) {
        EXPECT_EQ(TrafficOf(kernels, sent), TrafficOf(graph, group, ranks)) << action;
      };
      expect(work.forward, graphs.forward, "F");
      expect(work.backward_input, graphs.backward_input, "I");
      expect(work.backward_weight, graphs.backward_weight, "W");
    }
    EXPECT_EQ(SummedOncePerStep(shape, stage, batch), SummedIn(config, stage));
    const KeptBytes kept = KeptByStage(shape, stage, batch);
    const StageProgram program = MakeStageProgram(graphs);
    // Without the masks of tokens that other ranks have.
    const auto saved = static_cast<double>(program.saved_bytes);
    const auto live = static_cast<double>(program.live_bytes);
    EXPECT_NEAR(kept.from_forward, saved, kMasks * saved);
    EXPECT_NEAR(kept.after_input, live, most_after_input * live);
  }
}

TEST(CollectivePrices, AreOfTheCallsInCapturedGraphs) {
  for (const OwnModel& model : OwnModels()) {
    for (const int tensor : {2, 4}) {
      for (const bool divides_tokens : {false, true}) {
        for (const std::int64_t vocabulary : {256, 257}) {  // no rank has a part of an odd one
          for (const auto& [precision, again] :
               {std::pair("f32", false), {"f32", true}, {"bf16", false}, {"bf16", true}}) {
            TrainConfig config = ConfigOf(model, tensor, divides_tokens);
            config.parallel.gather_again = again;
            config.model.vocabulary = vocabulary;
            config.precision = precision;
            SCOPED_TRACE(fmt::format("{} tensor={} sequence_parallel={} vocabulary={} {} again={}",
                                     model.name, tensor, divides_tokens, vocabulary, precision,
                                     again));
            ExpectPriced(config);
          }
        }
      }
    }
  }
}

TEST(CollectivePrices, AreOfTheCallsOfContextRanks) {
  for (const OwnModel& model : OwnModels()) {
    for (const char* const exchange : {"all-gather", "ulysses", "ring"}) {
      for (const auto& [context, tensor, divides_tokens] :
           {std::tuple(2, 1, false), std::tuple(4, 1, false), std::tuple(2, 2, false),
            std::tuple(2, 2, true)}) {
        for (const auto& [precision, again] :
             {std::pair("f32", false), {"f32", true}, {"bf16", false}, {"bf16", true}}) {
          TrainConfig config = ConfigOf(model, tensor, divides_tokens);
          config.parallel.gather_again = again;
          config.model.vocabulary = 256;
          config.model.sequence = 64;
          config.precision = precision;
          config.parallel.context = context;
          config.parallel.context_exchange = exchange;
          SCOPED_TRACE(fmt::format("{} context={} {} tensor={} sequence_parallel={} {} again={}",
                                   model.name, context, exchange, tensor, divides_tokens, precision,
                                   again));
          // Gradients of heads that ranks share are alive for a moment.
          ExpectPriced(config, 0.025);
        }
      }
    }
  }
}

}  // namespace
}  // namespace penstock
