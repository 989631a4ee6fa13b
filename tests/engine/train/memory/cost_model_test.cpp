// src/cost_model counts what the graph compiler counts and saves.
#include <gtest/gtest.h>

#include <random>

#include "base/index.h"
#include "cost_model/microbatch.h"
#include "graph/capture/shapes_only.h"
#include "graph/ir/flops.h"
#include "model_spec/huggingface_config.h"
#include "model_spec/state_bytes.h"
#include "schedule/catalog.h"
#include "schedule/data_parallel.h"
#include "tests/cost_model/work_of_stage.h"
#include "tests/results.h"
#include "train/compiled/compile_stages.h"
#include "train/memory/shard_bytes.h"

namespace penstock {
namespace {

using Random = std::mt19937;

std::int64_t Pick(Random& random, std::int64_t least, std::int64_t most) {
  return std::uniform_int_distribution<std::int64_t>(least, most)(random);
}

using ModelKeys = std::map<std::string, std::int64_t>;

ModelKeys DecoderKeys(Random& random) {
  const std::int64_t kv_heads = Pick(random, 1, 3);
  return {{"kv_heads", kv_heads},
          {"heads", kv_heads * Pick(random, 1, 3)},
          {"head_dim", 2 * Pick(random, 2, 9)},
          {"hidden", Pick(random, 5, 50)}};
}

ModelKeys ExpertKeys(Random& random) {
  const std::int64_t experts = Pick(random, 2, 7);
  return {{"experts", experts},
          {"top_k", Pick(random, 1, experts)},
          {"expert_hidden", Pick(random, 5, 40)},
          {"normalize_top_k", Pick(random, 0, 1)}};
}

ModelKeys LatentKeys(Random& random) {
  const std::int64_t plain = Pick(random, 3, 12), rotary = 2 * Pick(random, 1, 5);
  return {{"heads", Pick(random, 2, 5)},  // with one head, some copies are views
          {"hidden", Pick(random, 5, 50)},
          {"query_rank", Pick(random, 0, 1) * Pick(random, 3, 20)},
          {"kv_rank", Pick(random, 3, 20)},
          {"plain_dim", plain},
          {"rotary_dim", rotary},
          {"value_dim", Pick(random, 0, 2) == 0 ? plain + rotary : Pick(random, 2, plain + rotary)},
          {"shared_experts", Pick(random, 0, 2)},
          {"dense_layers", Pick(random, 0, 3)}};
}

ModelKeys KeysOf(std::string_view model, Random& random) {
  if (model == "gpt2") {
    const std::int64_t heads = Pick(random, 1, 4);
    return {{"heads", heads}, {"hidden", Pick(random, 5, 50)}, {"tied", Pick(random, 0, 1)}};
  }
  if (model == "llama" || model == "qwen3") {
    ModelKeys keys = DecoderKeys(random);
    keys["tied"] = Pick(random, 0, 1);
    return keys;
  }
  ModelKeys keys = model.starts_with("deepseek") ? LatentKeys(random) : DecoderKeys(random);
  keys.merge(ExpertKeys(random));
  // The config.json of these cannot express it.
  if (model == "mixtral" || model == "deepseek_v2") keys.erase("normalize_top_k");
  return keys;
}

// A small configuration with random sizes, as text.
TrainConfig RandomConfig(std::string_view model, std::string_view precision, Random& random) {
  TrainConfig config;
  config.precision = precision;
  config.model.name = model;
  config.model.layers = Pick(random, 3, 8);
  config.model.vocabulary = Pick(random, 10, 90);
  config.model.sequence = Pick(random, 2, 40);
  config.batch = static_cast<int>(Pick(random, 1, 4));
  const ModelKeys keys = KeysOf(model, random);
  for (const auto& [key, value] : keys) {
    const bool is_flag = key == "tied" || key == "normalize_top_k";
    config.model.options[key] =
        is_flag ? (value != 0 ? "true" : "false") : fmt::format("{}", value);
  }
  if (model.starts_with("deepseek")) {
    config.model.options["router_scale"] = Pick(random, 0, 1) == 0 ? "1" : "2.5";
  }
  config.model.dim = Pick(random, 1, 8) * keys.at("heads");
  config.pipeline.ranks = static_cast<int>(Pick(random, 1, 3));
  config.pipeline.stages = config.pipeline.ranks;
  config.pipeline.schedule = "gpipe";
  return config;
}

// The architecture by the config.json that the model writes.
ModelShape WrittenShapeOf(const ModelConfig& config) {
  const auto text = ValueOf(HuggingFaceConfigText(config));
  const auto shape = ParseHuggingFaceShape(text);
  EXPECT_TRUE(shape) << shape.error().line();
  return shape.value_or(ModelShape{});
}

// Every key of a configuration, for messages.
std::string TextOf(const TrainConfig& config, int stage) {
  const ModelConfig& model = config.model;
  std::string text =
      fmt::format("{} {} stage {} of {} dim={} layers={} vocabulary={} sequence={} batch={}",
                  model.name, config.precision, stage, config.pipeline.ranks, model.dim,
                  model.layers, model.vocabulary, model.sequence, config.batch);
  for (const auto& [key, value] : model.options) text += fmt::format(" {}={}", key, value);
  return text;
}

double ParametersIn(const StageGraphs& graphs) {
  double parameters = 0;
  for (const Bound& parameter : graphs.joint.parameters) {
    double elements = 1;
    for (const std::int64_t size : graphs.joint.graph.value(parameter.value).type.sizes) {
      elements *= static_cast<double>(size);
    }
    parameters += elements;
  }
  return parameters;
}

void ExpectCapturedFigures(const TrainConfig& config) {
  const ShapesOnly shapes_only;
  const ModelShape shape = WrittenShapeOf(config.model);
  Microbatch batch{config.batch, config.model.sequence};
  batch.precision = config.precision == "bf16" ? Precision::kBf16 : Precision::kFp32;
  const auto stages = ValueOf(SplitLayers(shape.layers, config.pipeline.ranks));
  for (int i = 0; i < config.pipeline.ranks; ++i) {
    SCOPED_TRACE(TextOf(config, i));
    const LayerRange& stage = stages[Index(i)];
    const auto graphs = ValueOf(GraphsOfStage(config, i, {}));
    const StageProgram program = MakeStageProgram(graphs);
    const Work work = WorkOfStage(shape, stage, batch);
    const auto flops = [](const Graph& graph) {
      return static_cast<double>(FlopsOf(graph).value());
    };
    EXPECT_EQ(ParametersOfStage(shape, stage, batch).all(), ParametersIn(graphs));
    EXPECT_EQ(FlopsOf(work.forward), flops(graphs.forward));
    EXPECT_EQ(FlopsOf(work.backward_input), flops(graphs.backward_input));
    EXPECT_EQ(FlopsOf(work.backward_weight), flops(graphs.backward_weight));
    const KeptBytes kept = KeptByStage(shape, stage, batch);
    EXPECT_EQ(kept.from_forward, static_cast<double>(program.saved_bytes));
    EXPECT_EQ(kept.after_input, static_cast<double>(program.live_bytes));
  }
}

class CostModelFigures : public testing::TestWithParam<const char*> {};

TEST_P(CostModelFigures, EqualThoseOfCapturedStages) {
  Random random(11);
  for (int run = 0; run < 8; ++run) {
    for (const char* precision : {"f32", "bf16"}) {
      ExpectCapturedFigures(RandomConfig(GetParam(), precision, random));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, CostModelFigures,
                         testing::Values("llama", "qwen3", "gpt2", "mixtral", "qwen3_moe",
                                         "deepseek_v2", "deepseek_v3"));

// AdamW also counts its steps, once per parameter tensor, and shards are padded. Gradients include
// the losses.
void ExpectPredictedStates(TrainConfig config, int zero) {
  ScheduleParams params = {.ranks = config.pipeline.ranks,
                           .microbatches = config.pipeline.microbatches = 4};
  const Schedule pipeline = Generate("1f1b", params).value();
  config.parallel.data = 2;
  config.parallel.zero = zero;
  const auto predicted = ValueOf(PredictRankBytes(config, AddDataParallelism(pipeline, 2).value()));
  const ModelShape shape = WrittenShapeOf(config.model);
  const Precision precision = config.precision == "bf16" ? Precision::kBf16 : Precision::kFp32;
  for (int i = 0; i < config.pipeline.ranks; ++i) {
    SCOPED_TRACE(TextOf(config, i));
    const LayerRange stage = SplitLayers(shape.layers, config.pipeline.ranks).value()[Index(i)];
    const double parameters = ParametersOfStage(shape, stage, {}).all();
    const StateBytes states =
        StatesOf(ElementsOf(parameters, {zero, 2}), AdamWFormat(ElementBytes(precision)));
    const RankBytes& bytes = predicted[Index(i)];
    // A tensor begins at a multiple of 256 bytes. A layer has at most 12.
    const double rounding = 256 * 12 * static_cast<double>(stage.end - stage.begin + 1);
    EXPECT_NEAR(states.weights, static_cast<double>(bytes.weights), rounding);
    EXPECT_NEAR(states.optimizer, static_cast<double>(bytes.optimizer), rounding);
    EXPECT_LT(rounding, 0.02 * states.total());
    if (zero > 1) continue;  // REDUCE_GRAD also needs whole gradients for a while
    EXPECT_NEAR(states.gradients, static_cast<double>(bytes.gradients), rounding);
  }
}

TEST(CostModelStates, AreThoseThatTrainingPredicts) {
  Random random(3);
  for (const char* model : {"llama", "qwen3", "mixtral"}) {
    for (const char* precision : {"f32", "bf16"}) {
      for (const int zero : {0, 1, 2}) {
        TrainConfig config = RandomConfig(model, precision, random);
        config.model.options.erase("tied");  // a shared parameter is not in shards
        config.model.dim *= 64;
        config.model.options["hidden"] = "800";
        config.pipeline.ranks = config.pipeline.stages = 3;
        SCOPED_TRACE(zero);
        ExpectPredictedStates(config, zero);
      }
    }
  }
}

}  // namespace
}  // namespace penstock
