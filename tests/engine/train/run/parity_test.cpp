// Every schedule trains with the same losses and weights as plain autograd on one rank, bit for
// bit.
//
// Each stage accumulates the weight gradients of its microbatches in the order of its B or W
// actions, then adds its replicas' gradients in the order of their chains. The reference adds in
// the same order; in another order, the last bits would differ. Schedules without a flush are
// compared with their recurrences: each stage uses the weight version that its microbatch reads.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <gtest/gtest.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>

#include "config/replicas.h"
#include "config/stage_ranges.h"
#include "graph/ops/random_ops.h"
#include "runtime/executor/run.h"
#include "schedule/catalog.h"
#include "schedule/data_parallel.h"
#include "schedule/passes/passes.h"
#include "schedule/text/text.h"
#include "tests/engine/train/run/sums_of_gradients.h"
#include "tests/engine/train/run/trained_model.h"
#include "tests/engine/train/tiny_run.h"
#include "tests/results.h"
#include "train/run/pipeline.h"

namespace penstock {
namespace {

constexpr int kSteps = 3;   // of a schedule with a flush
constexpr int kRounds = 2;  // of one without, of kSteps steps each

// While it exists, autograd's dropout draws what the stages of a pipeline do: each op is seeded by
// its number in the whole model.
class NumberedDropout {
 public:
  explicit NumberedDropout(std::uint64_t seed)
      : include_(c10::DispatchKey::TESTING_ONLY_GenericMode) {
    Seed() = seed;
    SetRandomOp(0);
  }
  static std::uint64_t& Seed() {
    thread_local std::uint64_t seed = 0;
    return seed;
  }

 private:
  c10::impl::IncludeDispatchKeyGuard include_;
};

at::Tensor& Bernoulli(at::Tensor& mask, double p, std::optional<at::Generator> /*none*/) {
  const c10::impl::ExcludeDispatchKeyGuard below(c10::DispatchKey::TESTING_ONLY_GenericMode);
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  SeedRandomOp(generator, NumberedDropout::Seed(), NextRandomOp());
  return mask.bernoulli_(p, generator);
}

TORCH_LIBRARY_IMPL(_, TESTING_ONLY_GenericMode, library) {
  library.fallback(torch::CppFunction::makeFallthrough());
}
TORCH_LIBRARY_IMPL(aten, TESTING_ONLY_GenericMode, library) {
  library.impl("bernoulli_.float", &Bernoulli);
}

// Returns the microbatches of a step in the order in which the stage computes weight gradients.
std::vector<int> OrderOfGradients(const Schedule& schedule, int stage) {
  const int count = schedule.microbatches / schedule.placement.replicas();
  const int first = stage / schedule.placement.chain_length() * count;
  std::vector<int> order;
  for (const Action& action : schedule.lanes[schedule.placement.rank_of(stage)]) {
    ForEachPart(action, [&](const Part& part) {
      if (part.stage != stage || !EndsMicrobatch(part.op) || part.microbatch >= count) return;
      order.push_back(first + part.microbatch);
    });
  }
  return order;
}

// How one stage of the model is trained.
struct StageRule {
  std::vector<std::vector<int>> orders;  // by chain
  int microbatches_per_update = 1;
  int lag = 0;  // how many versions old the weights of a microbatch are
};

StageRule RuleOf(const Schedule& schedule, int stage) {
  StageRule rule;
  const int length = schedule.placement.chain_length();
  for (int chain = 0; chain < schedule.placement.replicas(); ++chain) {
    rule.orders.push_back(OrderOfGradients(schedule, chain * length + stage));
  }
  rule.microbatches_per_update = schedule.microbatches;
  if (schedule.weights == WeightPolicy::kDoubleBuffered) rule.lag = 1;
  if (schedule.weights == WeightPolicy::kStashed) {
    rule.microbatches_per_update = 1;
    rule.orders = {{0}};
    rule.lag = length - 1 - stage;
  }
  return rule;
}

// Runs all stages on one rank with autograd. Each microbatch reads the weight version of its
// stage's rule: W(v+1) = W(v) - update(gradients at W(v-lag)).
class Reference {
 public:
  Reference(const TrainConfig& config, std::vector<StageRule> rules)
      : config_(config), rules_(std::move(rules)), working_(Model(config).stages) {
    const LanguageModel start = Model(config);
    if (config.precision == "bf16") working_ = Cast(start);
    const auto rate = std::make_shared<LearningRate>(LearningRate{config.optimizer, config.steps});
    for (std::size_t i = 0; i < start.stages.size(); ++i) {
      auto& stage = stages_.emplace_back();
      const auto dtype = config.optimizer.gradient_dtype == "bf16" ? at::kBFloat16 : at::kFloat;
      const int updates = config.pipeline.microbatches / rules_[i].microbatches_per_update;
      stage.optimizer = std::make_unique<Optimizer>(rate, updates);
      for (const auto& parameter : start.stages[i]->named_parameters()) {
        const at::Tensor value = parameter.value().detach();
        stage.parameters.push_back({parameter.key(), value, at::zeros_like(value, dtype)});
      }
      Keep(stage);
    }
    for (const SharedParameter& shared : SharedParameters(config.model, Ranges())) {
      std::vector<NamedParameter*>& copies = shared_.emplace_back();
      for (const int stage : shared.stages) {
        for (NamedParameter& each : stages_[stage].parameters) {
          if (each.name == shared.name) copies.push_back(&each);
        }
      }
    }
  }

  TrainedModel Run(const BatchSource& source, int steps) {
    TrainedModel trained;
    for (int step = 0; step < steps; ++step) trained.losses.push_back(Step(source, step));
    for (const auto& stage : stages_) {
      for (const auto& parameter : stage.parameters) {
        trained.parameters.emplace(parameter.name, parameter.value.clone());
      }
    }
    return trained;
  }

 private:
  using Tensors = std::map<std::string, at::Tensor>;
  struct StageState {
    std::unique_ptr<Optimizer> optimizer;
    std::vector<NamedParameter> parameters;  // the newest
    std::vector<Tensors> versions;
    std::vector<Tensors> gradients;  // by microbatch since the last update
  };

  static LanguageModel Model(const TrainConfig& config) {
    const auto& layers = config.pipeline.stage_layers;
    return LanguageModel::Build(config.model, static_cast<int>(layers.size()), layers).value();
  }

  std::vector<LayerRange> Ranges() const {
    return SplitLayers(config_.model.layers, static_cast<int>(rules_.size()),
                       config_.pipeline.stage_layers)
        .value();
  }

  std::vector<std::shared_ptr<StageModule>> Cast(const LanguageModel& model) const {
    const std::vector<LayerRange> ranges = Ranges();
    std::vector<std::shared_ptr<StageModule>> cast;
    for (std::size_t i = 0; i < model.stages.size(); ++i) {
      cast.push_back(CastStage(*model.stages[i], config_.model, ranges[i], at::kBFloat16).value());
    }
    return cast;
  }

  static void Keep(StageState& stage) {
    Tensors version;
    for (const auto& parameter : stage.parameters) {
      version.emplace(parameter.name, parameter.value.clone());
    }
    stage.versions.push_back(std::move(version));
  }

  void Read(std::size_t i, int of_run) {
    const StageRule& rule = rules_[i];
    const int version = std::max(0, of_run / rule.microbatches_per_update - rule.lag);
    const at::NoGradGuard no_grad;
    for (auto& parameter : working_[i]->named_parameters()) {
      const Tensors& weights = stages_[i].versions[version];
      parameter.value().copy_(weights.at(parameter.key()));
    }
  }

  at::Tensor Forward(const at::Tensor& tokens, int step, int microbatch) {
    std::vector<at::Tensor> values = {tokens};
    const NumberedDropout numbered(SeedOfRun(config_.seed, step, microbatch));
    for (std::size_t i = 0; i < working_.size(); ++i) {
      StageModule& stage = *working_[i];
      Read(i, step * config_.pipeline.microbatches + microbatch);
      stage.zero_grad();
      stage.train();
      stage.SetLossGradient(1.0 / rules_[0].microbatches_per_update);
      values = stage.ForwardAll(values);
    }
    return values.front();
  }

  double Step(const BatchSource& source, int step) {
    const int count = config_.pipeline.microbatches;
    double sum = 0;
    for (int microbatch = 0; microbatch < count; ++microbatch) {
      const at::Tensor logits =
          Forward(source.tokens(step, microbatch), step, microbatch).to(at::kFloat);
      const at::Tensor loss = at::cross_entropy_loss(
          logits.reshape({-1, logits.size(-1)}), source.targets(step, microbatch).reshape({-1}));
      (loss / rules_[0].microbatches_per_update).backward();
      sum += loss.item<float>();
      for (std::size_t i = 0; i < stages_.size(); ++i) {
        auto& of_microbatch = stages_[i].gradients.emplace_back();
        for (const auto& parameter : working_[i]->named_parameters()) {
          of_microbatch[parameter.key()] = parameter.value().grad().clone();
        }
      }
      if ((microbatch + 1) % rules_[0].microbatches_per_update == 0) Update();
    }
    return sum / count;
  }

  void Update() {
    for (std::size_t i = 0; i < stages_.size(); ++i) SumGradients(stages_[i], rules_[i]);
    for (const std::vector<NamedParameter*>& copies : shared_) {
      std::vector<at::Tensor> parts;
      for (const NamedParameter* copy : copies) parts.push_back(copy->gradient);
      const at::Tensor sum = SumInFloat(parts);
      for (NamedParameter* copy : copies) copy->gradient.copy_(sum);
    }
    if (config_.optimizer.clip > 0) Clip();
    const at::NoGradGuard no_grad;
    for (StageState& stage : stages_) {
      stage.optimizer->Update(stage.parameters);
      stage.gradients.clear();
      Keep(stage);
    }
  }

  void Clip() {
    double squares = 0;
    for (std::size_t stage = 0; stage < stages_.size(); ++stage) {
      for (const double norm : SquaredNorms(stage)) squares += norm;
    }
    const double norm = std::sqrt(squares);
    if (norm <= config_.optimizer.clip) return;
    for (StageState& stage : stages_) {
      for (auto& parameter : stage.parameters) {
        parameter.gradient.mul_(config_.optimizer.clip / norm);
      }
    }
  }

  std::vector<double> SquaredNorms(std::size_t stage) const {
    std::vector<bool> shared;
    std::vector<bool> is_copy;
    for (const NamedParameter& parameter : stages_[stage].parameters) {
      const auto holds = [&](const auto& copies, std::ptrdiff_t from) {
        return std::find(copies.begin() + from, copies.end(), &parameter) != copies.end();
      };
      shared.push_back(std::ranges::any_of(shared_, [&](auto& all) { return holds(all, 0); }));
      is_copy.push_back(std::ranges::any_of(shared_, [&](auto& all) { return holds(all, 1); }));
    }
    const bool by_shard = config_.parallel.data > 1 || config_.parallel.zero > 0;
    const auto replicas = static_cast<int>(rules_[stage].orders.size());
    const int shards = reduces() ? config_.parallel.data : replicas;
    return NormsByShard(stages_[stage].parameters, shared, is_copy, by_shard ? shards : 1);
  }

  // Whether REDUCE_GRAD adds the gradients of the pipelines.
  bool reduces() const { return config_.parallel.zero >= 2 && config_.parallel.data > 1; }

  bool IsShared(const NamedParameter& parameter) const {
    return std::ranges::any_of(shared_, [&](const auto& copies) {
      return std::ranges::find(copies, &parameter) != copies.end();
    });
  }

  // Adds the gradients of the chains in their order. With REDUCE_GRAD, first the gradients of equal
  // chains of all pipelines.
  void AddChains(const std::vector<at::Tensor>& sums, NamedParameter& parameter) const {
    const bool reduced = reduces() && !IsShared(parameter);
    const std::size_t per_pipeline = reduced ? sums.size() / Index(config_.parallel.data) : 1;
    std::vector<at::Tensor> of_chains;
    for (std::size_t chain = 0; chain < per_pipeline; ++chain) {
      std::vector<at::Tensor> parts;
      for (std::size_t i = chain; i < sums.size(); i += per_pipeline) parts.push_back(sums[i]);
      of_chains.push_back(SumInFloat(parts));
    }
    parameter.gradient.copy_(SumInFloat(of_chains));
  }

  void SumGradients(StageState& stage, const StageRule& rule) const {
    for (NamedParameter& parameter : stage.parameters) {
      std::vector<at::Tensor> sums;
      for (const std::vector<int>& order : rule.orders) {
        sums.push_back(at::zeros_like(parameter.gradient));
        for (const int microbatch : order) {
          sums.back().add_(stage.gradients[microbatch].at(parameter.name));
        }
      }
      AddChains(sums, parameter);
    }
  }

  TrainConfig config_;
  std::vector<StageRule> rules_;
  std::vector<std::shared_ptr<StageModule>> working_;  // modules that compute
  std::vector<StageState> stages_;
  std::vector<std::vector<NamedParameter*>> shared_;  // copies of one parameter
};

// The results of the pipeline and of the reference for one schedule.
struct Both {
  TrainedModel pipeline, reference;
};

// Checks all copies of parameters and optimizer state, in replicas and in stages that share them.
void ExpectCopiesEqual(const Pipeline& pipeline) {
  const auto expected = ByName(pipeline.model);
  for (const auto& [name, value] : pipeline.model.AllCopies()) {
    EXPECT_TRUE(at::equal(value, expected.at(name))) << name;
  }
  std::map<std::string, at::Tensor> states;
  for (const auto& optimizer : pipeline.optimizers) {
    for (const StatePiece& piece : OptimizerState(*optimizer)) {
      const std::string key = fmt::format("{} {}", piece.name, piece.layout.begin());
      const at::Tensor& first = states.emplace(key, piece.values).first->second;
      EXPECT_TRUE(at::equal(first, piece.values)) << piece.name;
    }
  }
  for (const LanguageModel& replica : pipeline.replicas) {
    for (const auto& [name, value] : replica.Parameters()) {
      EXPECT_TRUE(at::equal(value, expected.at(name))) << name;
    }
  }
}

// Checks that stages keep as many weight versions as the schedule needs, and no more bytes.
void ExpectVersions(const Pipeline& pipeline, const Schedule& schedule) {
  if (pipeline.zero > 0) return;  // stages list only their shards
  for (int rank = 0; rank < schedule.ranks(); ++rank) {
    std::int64_t in_f32 = 0, in_bf16 = 0;  // bytes; in bf16 with masters in f32
    for (const int stage : schedule.placement.stages_of(rank)) {
      std::int64_t versions = 1, elements = 0;
      if (schedule.weights == WeightPolicy::kDoubleBuffered) versions = 2;
      if (schedule.weights == WeightPolicy::kStashed) versions = schedule.stages() - stage;
      for (const NamedParameter& parameter : pipeline.stages[stage]->Parameters()) {
        elements += parameter.value.numel();
      }
      in_f32 += elements * 4 * versions;
      in_bf16 += elements * (2 * versions + 4);
    }
    const std::int64_t held = pipeline.rank_shards[rank]->weights.held();
    EXPECT_TRUE(held == in_f32 || held == in_bf16) << "rank " << rank << " holds " << held;
  }
}

Both TrainBoth(TrainConfig config, Schedule schedule) {
  at::set_num_threads(1);
  EXPECT_TRUE(Succeeds(SetShared(config, schedule)));
  config.pipeline.microbatches = schedule.microbatches;
  const int rounds = schedule.steps == 1 ? kSteps : kRounds;
  const int steps = rounds * schedule.steps;
  config.steps = steps;
  const std::vector<std::uint8_t> text = Text();
  const BatchSource source =
      MakeBatchSource(Sampler(text, config.model.sequence, config.seed), config);
  Pipeline pipeline = BuildPipeline(config, schedule, source).value();
  Both both;
  both.pipeline.losses.resize(steps);
  RunOptions options = {.steps = rounds, .update = UpdateRuleOf(config.optimizer)};
  options.update.zero = pipeline.zero;
  options.on_thread_start = [](int) { at::set_num_threads(1); };
  const int last_rank = schedule.placement.rank_of(schedule.stages() - 1);
  options.on_step = [&](int rank, std::int64_t step) {
    if (rank == last_rank) both.pipeline.losses[step] = pipeline.last().StepLoss();
  };
  const std::vector<Stage*> stages = pipeline.pointers();
  EXPECT_TRUE(Succeeds(RunRanks(schedule, stages, options)));
  GatherWeights(pipeline, schedule, /*replicas=*/true);
  both.pipeline.parameters = ByName(pipeline.model);
  ExpectCopiesEqual(pipeline);
  ExpectVersions(pipeline, schedule);

  // Training has changed every parameter.
  const LanguageModel start = LanguageModel::Build(config.model).value();
  for (const auto& [name, value] : start.Parameters()) {
    EXPECT_FALSE(at::equal(value, both.pipeline.parameters.at(name))) << name;
  }

  std::vector<StageRule> rules;
  for (int stage = 0; stage < schedule.placement.chain_length(); ++stage) {
    rules.push_back(RuleOf(schedule, stage));
  }
  both.reference = Reference(config, std::move(rules)).Run(source, steps);
  return both;
}

// Returns 1 or 2 layers per stage at random.
std::vector<std::int64_t> UnevenLayers(std::mt19937& random, int stages) {
  std::vector<std::int64_t> layers;
  for (int stage = 0; stage < stages; ++stage) {
    layers.push_back(1 + static_cast<std::int64_t>(random() % 4 == 0));
  }
  return layers;
}

// An algorithm and a model.
using Pair = std::pair<std::string, std::string>;

// The other models differ from these in layers, which schedules do not see.
bool IsTriedTwice(std::string_view model) {
  return model == "llama" || model == "gpt2" || model == "deepseek_v3";
}

// Returns all algorithms with three models, and a quarter of them with each other model.
std::vector<Pair> Pairs() {
  std::vector<Pair> pairs;
  int number = 0;
  for (const Algorithm& algorithm : Catalog()) {
    for (const std::string_view model : ModelNames()) {
      if (IsTriedTwice(model) || ++number % 4 == 0) pairs.emplace_back(algorithm.name, model);
    }
    ++number;  // another model for the next algorithm
  }
  return pairs;
}

class Parity : public testing::TestWithParam<Pair> {};

TEST_P(Parity, TrainsLikeOneRank) {
  const auto& [algorithm, model] = GetParam();
  std::mt19937 random(static_cast<unsigned>(std::hash<std::string>()(algorithm)));
  int cases = 0;
  const int most = IsTriedTwice(model) ? 2 : 1;
  for (int attempt = 0; attempt < 100 && cases < most; ++attempt) {
    ScheduleParams params = {.ranks = 1 + static_cast<int>(random() % 4),
                             .chunks = random() % 2 == 0 ? 0 : 1 + static_cast<int>(random() % 2),
                             .microbatches = 1 + static_cast<int>(random() % 9)};
    if (FindAlgorithm(algorithm).value()->supported.steps) params.steps = kSteps;
    const auto pipeline = Generate(algorithm, params);
    if (!pipeline || pipeline->placement.chain_length() > 6) continue;
    ++cases;
    const bool flushes = pipeline->weights == WeightPolicy::kFlush;
    const int data = flushes ? 1 + static_cast<int>(random() % 3) : 1;
    const auto schedule = AddDataParallelism(*pipeline, data);
    SCOPED_TRACE(fmt::format("case {} p={} v={} m={} data={}", cases, params.ranks,
                             schedule->placement.chunks(), params.microbatches, data));
    TrainConfig config = TinyConfig();
    config.model.name = model;
    config.seed = config.model.seed = random();
    config.pipeline.stage_layers = UnevenLayers(random, schedule->placement.chain_length());
    config.model.layers = 0;
    for (const std::int64_t count : config.pipeline.stage_layers) config.model.layers += count;
    config.parallel = {data, flushes ? static_cast<int>(random() % 4) : 0,
                       static_cast<int>(random() % 3), static_cast<int>(random() % 4)};
    if (flushes && random() % 2 == 0) {
      config.optimizer.clip = 0.5;
      config.optimizer.post_validation = random() % 2 == 0;
    }
    if (cases == 1 && (config.parallel.zero == 0 || HasReplicaGroups(config.parallel, *schedule))) {
      config.optimizer.name = "muon";
    }
    if (cases == 2) {
      config.model.options["dropout"] = "0.25";
      config.recompute = {"least", "least"};
      if (random() % 2 == 0) config.precision = "bf16";
    }
    // Stages that share a parameter update it together, so without a flush they share none.
    if (model == "gpt2" && !flushes) config.model.options["tied"] = "false";
    if (params.microbatches % 2 == 0) config.model.document_end = 3;
    if (params.microbatches % 3 == 0) config.optimizer.gradient_dtype = "bf16";
    const Schedule sharded = ShardSchedule(*schedule, config.parallel).value();
    const Both both = TrainBoth(config, attempt % 2 == 0 ? sharded : AddCommunication(sharded));
    ExpectEqual(both.pipeline, both.reference);
  }
  EXPECT_GT(cases, 0) << "the algorithm accepts none of the small parameters";
}

INSTANTIATE_TEST_SUITE_P(Catalog, Parity, testing::ValuesIn(Pairs()), [](const auto& info) {
  std::string name = info.param.first + "_" + info.param.second;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return std::isalnum(c) == 0; }, '_');
  return name;
});

// A schedule written by hand, in an arbitrary order that the dependencies allow, with some B split
// into I and W. Stages 0 and 3 are on rank 0, 1 and 2 on rank 1.
TEST(AnySchedule, TrainsAHandwrittenCsv) {
  const Schedule schedule = ParseCsv(
                                "0F2,0F0,0F1,3F2,3F0,3I0,3B2,3F1,3B1,0B1,3W0,0B0,0B2\n"
                                "1F2,2F2,1F0,2F0,1F1,2F1,2B0,2I2,2B1,1B1,1B0,2W2,1B2\n")
                                .value();
  TrainConfig config = TinyConfig();
  config.model.layers = 5;
  config.pipeline.stage_layers = {1, 2, 1, 1};
  const Both both = TrainBoth(config, schedule);
  ExpectEqual(both.pipeline, both.reference);
}

TEST(SharedParameters, NeedAFlush) {
  TrainConfig config = TinyConfig();
  config.model.name = "gpt2";
  Schedule schedule = Generate("pipedream", {.ranks = 4, .steps = 2}).value();
  EXPECT_EQ(LineOf(SetShared(config, schedule)),
            "pipeline.schedule: stages 0, 3 share embedding.weight, but schedule 'pipedream' does "
            "not flush, so they "
            "would update it at different times: use a schedule that flushes, or model.tied=false");
  config.model.options["tied"] = "false";
  EXPECT_TRUE(SetShared(config, schedule));
}

}  // namespace
}  // namespace penstock
