#include "train/run/pipeline.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "base/index.h"
#include "base/mix_bits.h"
#include "config/replicas.h"
#include "config/sequence_lengths.h"
#include "config/stage_ranges.h"
#include "graph/device/device_queue.h"
#include "graph/ops/random_ops.h"
#include "train/compiled/compiled.h"
#include "train/compiled/example_inputs.h"
#include "train/log/start_progress.h"
#include "train/run/vocabulary_shards.h"
#include "train/stage/stage_assembly.h"
#include "train/stage/stage_options.h"
#include "train/stage/stage_spec.h"

namespace penstock {
namespace {

// The tensors of either the tokens or the targets, one per microbatch index. Threads: one at a
// time. The first and the last stage may run on two threads, so each of them needs its own object.
class BatchBuffers {
 public:
  BatchBuffers(std::shared_ptr<const SampleSource> samples, const TrainConfig& config,
               std::size_t shift)
      : samples_(std::move(samples)), batch_(config.batch), shift_(shift) {
    const std::vector<std::int64_t> lengths = SliceLengths(config);
    starts_.resize(lengths.size());
    std::exclusive_scan(lengths.begin(), lengths.end(), starts_.begin(), std::int64_t{0});
    const std::vector<std::int64_t> of_microbatches = MicrobatchLengths(config);
    for (int microbatch = 0; microbatch < config.pipeline.microbatches; ++microbatch) {
      if (!of_microbatches.empty()) {
        tensors_.push_back(
            at::empty({config.batch, of_microbatches[Index(microbatch)]}, at::kLong));
        continue;
      }
      for (const std::int64_t length : lengths) {
        tensors_.push_back(at::empty({config.batch, length}, at::kLong));
      }
    }
  }

  at::Tensor Fill(std::int64_t step, int microbatch) {
    at::Tensor& tensor = tensors_[microbatch];
    // Without a flush, the same microbatch index of the previous step may still be in flight.
    if (tensor.use_count() > 1) tensor = at::empty_like(tensor);
    auto* to = tensor.mutable_data_ptr<std::int64_t>();
    const std::size_t length = tensor.size(1);
    const std::size_t index = microbatch;
    const std::size_t begin = Index(starts_[index % starts_.size()]) + shift_;
    const auto first =
        static_cast<std::int64_t>(index / starts_.size()) * static_cast<std::int64_t>(batch_);
    for (int i = 0; i < batch_; ++i) {
      samples_->Copy(step, first + i, begin, {to, length});
      // Any token serves as padding, because no token before it attends to it.
      if (shift_ == 0) std::replace(to, to + length, kNoToken, std::int64_t{0});
      to += length;
    }
    return tensor;
  }

 private:
  std::shared_ptr<const SampleSource> samples_;
  int batch_;
  std::vector<std::int64_t> starts_;  // by slice: the index of its first token
  std::size_t shift_;                 // 0: tokens; 1: targets
  std::vector<at::Tensor> tensors_;   // by microbatch index
};

// Returns the configured folder, else the run's.
std::string OffloadFolder(const TrainConfig& config) {
  return config.offload.pool.empty() ? RunPath(config) : config.offload.pool;
}

}  // namespace

std::vector<Stage*> Pipeline::pointers() const {
  std::vector<Stage*> pointers;
  for (const auto& stage : stages) pointers.push_back(stage.get());
  return pointers;
}

double Pipeline::StepLoss() const {
  for (const auto& shard : vocabulary) {
    if (shard != nullptr && shard->has_loss()) return shard->StepLoss();
  }
  return last().StepLoss();
}

BatchSource MakeBatchSource(const Sampler& sampler, const TrainConfig& config) {
  return MakeBatchSource(std::make_shared<const Sampler>(sampler), config);
}

BatchSource MakeBatchSource(std::shared_ptr<const SampleSource> samples,
                            const TrainConfig& config) {
  const auto read = [&](std::size_t shift) {
    const auto buffers = std::make_shared<BatchBuffers>(samples, config, shift);
    return [buffers](std::int64_t step, int microbatch) { return buffers->Fill(step, microbatch); };
  };
  return {read(0), read(1), [samples, config] { return MakeBatchSource(samples, config); }};
}

BatchSource MakeBatchSource(std::shared_ptr<const SampleSource> samples, const RunContext& run) {
  const Placement& placement = run.schedule.placement;
  bool has_first = false;
  bool has_last = false;
  for (int stage = 0; stage < run.schedule.stages(); ++stage) {
    if (!run.ranks.has(placement.rank_of(stage))) continue;
    has_first = has_first || placement.previous(stage) < 0;
    has_last = has_last || placement.next(stage) < 0;
  }
  BatchSource source = MakeBatchSource(std::move(samples), run.config);
  if (!has_first) source.tokens = nullptr;
  if (!has_last) source.targets = nullptr;
  return source;
}

namespace {

// Ranks exchange the gradients of shared parameters by their index in the schedule, so model and
// schedule must list the same ones.
Status CheckShared(const std::vector<SharedParameter>& shared, const Schedule& schedule) {
  std::vector<std::vector<int>> stages;
  for (const SharedParameter& parameter : shared) stages.push_back(parameter.stages);
  if (stages == schedule.shared) return {};
  return InvalidArgument(
      "the schedule lists {} parameters that stages share, but the model has {}: call SetShared "
      "before BuildPipeline",
      schedule.shared.size(), shared.size());
}

// Sets the compiled stage, if the run has any.
Status SetCompiled(const TrainConfig& config, int model_stage, TorchStageOptions& options) {
  if (config.compiled.empty()) return {};
  if (options.schedule.updates_each_microbatch()) {
    return InvalidParameter(
        "compiled",
        ": the stages in {} were compiled for one update per step, but this schedule "
        "updates "
        "after every microbatch: remove 'compiled'",
        config.compiled);
  }
  PENSTOCK_TRY(StageProgram program, LoadStageProgram(CompiledFile(config.compiled, model_stage),
                                                      KeyOfStage(config, model_stage)));
  options.programs = std::make_shared<const std::vector<StageProgram>>(1, std::move(program));
  return {};
}

// Returns the exchange for matrices that shards divide; null if the stage has none.
Result<std::unique_ptr<MatrixExchange>> MakeExchange(const TrainConfig& config,
                                                     std::span<const NamedTensor> parameters,
                                                     const TorchStageOptions& options) {
  const ParameterRules rules(config.optimizer);
  std::vector<ExchangedParameter> exchanged;
  for (const auto& [name, tensor] : parameters) {
    exchanged.push_back({name, tensor.sizes().vec(), rules.Of(name, Index(tensor.dim())).muon});
  }
  const bool any = std::ranges::any_of(exchanged, &ExchangedParameter::orthogonalized);
  if (options.replicas.zero == 0 || !any) return std::unique_ptr<MatrixExchange>();
  if (options.replicas.group == nullptr) {
    return InvalidArgument(
        "Muon cannot shard its state over the two replicas of a bidirectional schedule: set "
        "parallel.zero=0, or parallel.data=2 and parallel.zero=2");
  }
  return std::make_unique<MatrixExchange>(ShardsOf(parameters, options), std::move(exchanged),
                                          options.replicas.group, options.rank.device());
}

// The programs of a run's stages. Identical stages share them.
class SharedPrograms {
 public:
  using Programs = std::shared_ptr<const std::vector<StageProgram>>;

  explicit SharedPrograms(const ModelConfig& model) : model_(model) {}

  // Returns the programs of an earlier stage that is identical, or null.
  Programs Find(const LayerRange& range) const {
    for (const auto& [known, programs] : known_) {
      if (AreAlike(model_, known, range)) return programs;
    }
    return nullptr;
  }
  void Add(const LayerRange& range, Programs programs) {
    known_.emplace_back(range, std::move(programs));
  }

 private:
  ModelConfig model_;
  std::vector<std::pair<LayerRange, Programs>> known_;
};

}  // namespace

Result<Pipeline> BuildPipeline(const TrainConfig& config, const Schedule& schedule,
                               const BatchSource& source) {
  Collectives alone(nullptr);
  return BuildPipeline({config, schedule, alone, LocalRanks(schedule.ranks()), {.log = nullptr}},
                       source);
}

Result<Pipeline> BuildPipeline(const RunContext& run, const BatchSource& source) {
  const TrainConfig& config = run.config;
  const Schedule& schedule = run.schedule;
  const Placement& placement = schedule.placement;
  const int length = placement.chain_length();
  Pipeline pipeline;
  const LanguageModel empty{config.model, std::vector<std::shared_ptr<StageModule>>(Index(length))};
  pipeline.model = empty;
  pipeline.replicas.assign(Index(placement.replicas() - 1), empty);
  PENSTOCK_TRY(const c10::Device device, OpenDevice(config.device));
  PENSTOCK_TRY(const StageAssembly assembly,
               StageAssembly::Make(schedule, config.parallel, OffloadFolder(config), run.ranks,
                                   run.processes.group(),
                                   {device, config.device_graphs, config.device_parts}));
  pipeline.zero = assembly.zero();
  pipeline.replicas_per_shard = assembly.replicas_per_shard();
  pipeline.rank_shards = assembly.rank_shards();
  pipeline.device = device;
  pipeline.recorders = assembly.recorders();
  pipeline.rate = std::make_shared<LearningRate>(LearningRate{config.optimizer, config.steps});
  PENSTOCK_TRY(const std::vector<LayerRange> ranges, StageRanges(config, length));
  const at::Tensor tokens =
      at::zeros({config.batch, SliceLengths(config).front()}, at::device(device).dtype(at::kLong));
  StageExamples examples{{}, {at::zeros_like(tokens)}};
  SharedPrograms shared_programs(config.model);
  pipeline.ranges = ranges;
  pipeline.shared = SharedParameters(config.model, ranges);
  PENSTOCK_TRY_STATUS(CheckShared(pipeline.shared, schedule));
  PENSTOCK_TRY(pipeline.vocabulary, MakeVocabularyShards(run, source, device));
  StartProgress progress(run.log());
  for (int stage = 0; stage < schedule.stages(); ++stage) {
    if (run.stops()) break;
    if (!run.ranks.has(placement.rank_of(stage))) {
      pipeline.stages.emplace_back();
      pipeline.optimizers.emplace_back();
      examples.inputs.clear();
      continue;
    }
    const int model_stage = placement.model_stage(stage);
    PENSTOCK_TRY(TorchStageOptions options,
                 OptionsOfStage(config, schedule, pipeline.shared, stage));
    options.random.first_op = ranges[Index(model_stage)].begin * kRandomOpsPerLayer;
    PENSTOCK_TRY_STATUS(SetCompiled(config, model_stage, options));
    if (options.schedule.first) {
      examples.inputs = {tokens};
    } else if (examples.inputs.empty()) {
      PENSTOCK_TRY(examples.inputs,
                   ExampleInputs(config, std::span(ranges).first(model_stage), tokens.size(1)));
      for (at::Tensor& input : examples.inputs) {
        input = input.detach().to(device).requires_grad_(input.requires_grad());
      }
    }
    const auto report = [&](int slice) {
      progress.Report("building stages", stage, schedule.stages(), "slice", slice, schedule.slices);
    };
    report(0);
    LanguageModel& model = options.replicas.chain == 0
                               ? pipeline.model
                               : pipeline.replicas[options.replicas.chain - 1];
    const LayerRange range =
        WithExpertPart(ranges[model_stage], config.parallel, schedule, options.replicas.chain);
    auto& module = model.stages[model_stage];
    // One after the other, since those before may have only a shard of their weights by now.
    PENSTOCK_TRY(module, BuildStage(config.model, range));
    assembly.Join(stage, options);
    if (config.precision == "bf16") {
      PENSTOCK_TRY(options.working, CastStage(*module, config.model, range, at::kBFloat16));
      MoveStage(*options.working, device);
    }
    MoveStage(*module, device);
    options.rank.vocabulary = VocabularyOfStage(pipeline.vocabulary, schedule, stage);
    if (options.programs == nullptr) options.programs = shared_programs.Find(range);
    if (options.programs == nullptr) {
      PENSTOCK_TRY(
          std::vector<StageProgram> programs,
          CompileSlices(options.working ? options.working : module, examples, options, report));
      options.programs = std::make_shared<const std::vector<StageProgram>>(std::move(programs));
      shared_programs.Add(range, options.programs);
    }
    const int updates_per_step =
        options.schedule.microbatches / options.schedule.versions.microbatches_per_update;
    PENSTOCK_TRY(std::unique_ptr<MatrixExchange> exchange,
                 MakeExchange(config, ParametersOf(*module), options));
    const auto optimizer =
        std::make_shared<Optimizer>(pipeline.rate, updates_per_step, std::move(exchange));
    options.optimizer = {
        [optimizer](const std::vector<NamedParameter>& parameters) { optimizer->Save(parameters); },
        [optimizer] { optimizer->Restore(); }, [optimizer] { optimizer->Skip(); }};
    const UpdateRule rule = UpdateRuleOf(config.optimizer);
    const auto update = [optimizer, rule](std::vector<NamedParameter>& parameters) {
      // A rule that needs the norm of all gradients has already checked them.
      if (!rule.needs_norm()) optimizer->RecordSquaredNorms(FiniteSquaredNorms(rule, parameters));
      optimizer->Update(parameters);
    };
    auto made = TorchStage::Make(module, examples, source, options, update);
    if (!made) return tl::unexpected(std::move(made).error());
    pipeline.stages.push_back(*std::move(made));
    optimizer->MakeState(pipeline.stages.back()->Parameters());
    options.rank.shards->optimizer.Add(optimizer->Bytes());
    pipeline.optimizers.push_back(optimizer);
    examples.inputs = pipeline.stages.back()->ExampleOutputs();
  }
  return pipeline;
}

namespace {

// Replaces the stage of the model by one with the experts of all ranks and whole tables of the
// vocabulary.
void ReplaceStage(Pipeline& pipeline, std::size_t index, const std::vector<NamedTensor>& gathered) {
  auto& module = pipeline.model.stages[index];
  const auto own = module->named_parameters();
  LayerRange range = pipeline.ranges[index];
  range.sharded_vocabulary = false;
  auto whole = BuildUninitializedStage(pipeline.model.config, range).value();
  MoveStage(*whole, gathered.front().tensor.device());
  for (auto& parameter : whole->named_parameters()) {
    const auto found = std::ranges::find(gathered, parameter.key(), &NamedTensor::name);
    const bool is_own = found == gathered.end();
    parameter.value().set_data(is_own ? own[parameter.key()].detach() : found->tensor);
  }
  pipeline.replaced.resize(pipeline.ranges.size());
  pipeline.replaced[index] = std::exchange(module, std::move(whole));
}

}  // namespace

void GatherWeights(Pipeline& pipeline, const Schedule& schedule, bool replicas) {
  for (const auto& stage : pipeline.stages) {
    if (stage != nullptr) stage->StartGather();
  }
  for (std::size_t stage = 0; stage < pipeline.stages.size(); ++stage) {
    const bool keeps = replicas || static_cast<int>(stage) < schedule.placement.chain_length();
    if (pipeline.stages[stage] == nullptr) continue;
    pipeline.stages[stage]->FinishGather(keeps);
    const bool of_model = static_cast<int>(stage) < schedule.placement.chain_length();
    if (!of_model || pipeline.stages[stage]->AllExperts().empty()) continue;
    ReplaceStage(pipeline, stage, pipeline.stages[stage]->AllExperts());
  }
  for (const auto& shard : pipeline.vocabulary) {
    if (shard != nullptr) shard->StartGather();
  }
  for (std::size_t rank = 0; rank < pipeline.vocabulary.size(); ++rank) {
    if (pipeline.vocabulary[rank] == nullptr) continue;
    const std::vector<NamedTensor> tables = pipeline.vocabulary[rank]->FinishGather();
    for (const int stage : std::set{0, schedule.stages() - 1}) {
      const bool is_here = schedule.placement.rank_of(stage) == static_cast<int>(rank);
      if (is_here) ReplaceStage(pipeline, Index(stage), tables);
    }
  }
}

void DropGatheredWeights(Pipeline& pipeline) {
  for (const auto& stage : pipeline.stages) {
    if (stage != nullptr) stage->DropGathered();
  }
  for (std::size_t stage = 0; stage < pipeline.replaced.size(); ++stage) {
    if (pipeline.replaced[stage])
      pipeline.model.stages[stage] = std::move(pipeline.replaced[stage]);
  }
}

NamedState RankState(const Pipeline& pipeline, const Schedule& schedule, int rank) {
  NamedState state;
  for (const int stage : schedule.placement.stages_of(rank)) {
    if (!pipeline.IsFirstOfShard(stage / schedule.placement.chain_length())) continue;
    const std::size_t index = stage;
    std::set<std::string> saved_elsewhere;
    for (const SharedParameter& parameter : pipeline.shared) {
      if (parameter.stages.front() != stage) saved_elsewhere.insert(parameter.name);
    }
    for (const NamedParameter& parameter : pipeline.stages[index]->Parameters()) {
      if (saved_elsewhere.contains(parameter.name)) continue;
      state.emplace_back(parameter.name, parameter.value, parameter.shape, parameter.begin);
    }
    const NamedState kept = OptimizerState(*pipeline.optimizers[index], saved_elsewhere);
    state.insert(state.end(), kept.begin(), kept.end());
  }
  return state;
}

Result<int> RestorePipeline(Checkpoint& from, Pipeline& pipeline) {
  NamedState state;
  for (const auto& stage : pipeline.stages) {
    if (stage == nullptr) continue;
    for (const NamedParameter& each : stage->Restored()) {
      state.emplace_back(each.name, each.value, each.shape, each.begin);
      state.back().casts = true;
    }
  }
  int fresh = 0;
  for (const auto& optimizer : pipeline.optimizers) {
    if (optimizer == nullptr) continue;
    bool has_averages = true;
    for (const OptimizerTensor& each : optimizer->States()) {
      const std::string name = OptimizerTensorName(each.kind, each.parameter);
      if (from.reader.Find(name) != nullptr) {
        state.emplace_back(name, each.values, each.shape, each.begin);
        continue;
      }
      ++fresh;
      has_averages = has_averages && each.kind != kAverageKind;
    }
    optimizer->ResumeAfter(from.info.step, has_averages);
  }
  PENSTOCK_TRY_STATUS(Restore(from, state));
  for (const auto& stage : pipeline.stages) {
    if (stage != nullptr) stage->ReadWeights();
  }
  return fresh;
}

}  // namespace penstock
