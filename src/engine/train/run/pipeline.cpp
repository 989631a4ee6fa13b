#include "train/run/pipeline.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <set>

#include "base/index.h"
#include "config/replicas.h"
#include "config/sequence_lengths.h"
#include "config/stage_ranges.h"
#include "graph/device/device_queue.h"
#include "graph/ops/random_ops.h"
#include "train/compiled/compiled.h"
#include "train/compiled/example_inputs.h"
#include "train/log/start_progress.h"
#include "train/run/vocabulary_shards.h"
#include "train/shards/tensor_groups.h"
#include "train/stage/stage_builder.h"
#include "train/stage/stage_options.h"
#include "train/stage/stage_spec.h"

namespace penstock {
namespace {

// Returns the configured folder, else the run's.
std::string OffloadFolder(const TrainConfig& config) {
  return config.offload.pool.empty() ? RunPath(config) : config.offload.pool;
}

}  // namespace

std::vector<Stage*> Pipeline::pointers() const {
  std::vector<Stage*> pointers;
  for (const auto& stage : stages) pointers.push_back(stage.get());
  for (const Pipeline& plane : planes) {
    const std::vector<Stage*> others = plane.pointers();
    pointers.insert(pointers.end(), others.begin(), others.end());
  }
  return pointers;
}

double Pipeline::StepLoss() const {
  for (const auto& shard : vocabulary) {
    if (shard != nullptr && shard->has_loss()) return shard->StepLoss();
  }
  return last().StepLoss();
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
Status SetCompiled(const TrainConfig& config, int model_stage, int plane,
                   TorchStageOptions& options) {
  if (config.compiled.empty()) return {};
  if (options.schedule.updates_each_microbatch()) {
    return InvalidParameter(
        "compiled",
        ": the stages in {} were compiled for one update per step, but this schedule "
        "updates "
        "after every microbatch: remove 'compiled'",
        config.compiled);
  }
  PENSTOCK_TRY(StageProgram program,
               LoadStageProgram(CompiledFile(config.compiled, model_stage, config.parallel, plane),
                                KeyOfStage(config, model_stage, plane)));
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

// Sets the calls to the optimizer of a stage, and returns the function that updates its parameters.
TorchStage::Update UseOptimizer(const std::shared_ptr<Optimizer>& optimizer, const UpdateRule& rule,
                                TorchStageOptions& options) {
  options.optimizer = {
      [optimizer](const std::vector<NamedParameter>& parameters) { optimizer->Save(parameters); },
      [optimizer] { optimizer->Restore(); }, [optimizer] { optimizer->Skip(); }};
  GroupEnd* const tensor = options.rank.shards->tensor.get();
  return [optimizer, rule, tensor](std::vector<NamedParameter>& parameters) {
    // A rule that needs the norm of all gradients has already checked them.
    if (!rule.needs_norm()) {
      optimizer->RecordSquaredNorms(FiniteSquaredNorms(rule, parameters, tensor));
    }
    optimizer->Update(parameters);
  };
}

// Builds the stages of a pipeline one after the other: each takes examples of the outputs of the
// one before.
class PipelineBuilder {
 public:
  PipelineBuilder(const RunContext& run, int plane, const BatchSource& source, Pipeline& pipeline,
                  StageBuilder& builder)
      : run_(run),
        config_(run.config),
        planes_(Planes(config_.parallel)),
        plane_(plane),
        ranks_(run.RanksOf(plane)),
        source_(OfContextRank(
            source, {planes_.size(Axis::kContext), planes_.PlaceOf(plane, Axis::kContext)})),
        pipeline_(pipeline),
        builder_(builder),
        tokens_(at::zeros({config_.batch, TokensOfRank(config_, SliceLengths(config_).front())},
                          at::device(pipeline.device).dtype(at::kLong))),
        examples_{{}, {at::zeros_like(tokens_)}},
        progress_(run.log()) {}

  Status Add(int stage) {
    if (!ranks_.has(placement().rank_of(stage))) {
      pipeline_.stages.emplace_back();
      pipeline_.optimizers.emplace_back();
      examples_.inputs.clear();
      return {};
    }
    PENSTOCK_TRY(TorchStageOptions options,
                 OptionsOfStage(config_, run_.schedule, pipeline_.shared, stage));
    const int model_stage = placement().model_stage(stage);
    options.random.first_op = pipeline_.ranges[Index(model_stage)].begin * kRandomOpsPerLayer;
    // Other tokens, other numbers.
    const int tokens = plane_ / (DividesTokens(config_) ? 1 : planes_.size(Axis::kTensor));
    options.random.first_op += std::int64_t{tokens} << 40;
    PENSTOCK_TRY_STATUS(SetCompiled(config_, model_stage, plane_, options));
    PENSTOCK_TRY_STATUS(SetExamples(model_stage, options));
    Report(stage, 0);
    PENSTOCK_TRY(StageToBuild made, MakeModules(stage, std::move(options)));
    PENSTOCK_TRY_STATUS(
        builder_.SetPrograms(KindOf(stage), made, [&](int slice) { Report(stage, slice); }));
    PENSTOCK_TRY(const std::shared_ptr<Optimizer> optimizer,
                 MakeOptimizer(*made.trained, made.options));
    const auto update = UseOptimizer(optimizer, UpdateRuleOf(config_.optimizer), made.options);
    PENSTOCK_TRY(auto built, StageBuilder::Build(made, source_, update));
    pipeline_.stages.push_back(std::move(built));
    optimizer->MakeState(pipeline_.stages.back()->Parameters());
    made.options.rank.shards->optimizer.Add(optimizer->Bytes());
    pipeline_.optimizers.push_back(optimizer);
    examples_.inputs = pipeline_.stages.back()->ExampleOutputs();
    return {};
  }

 private:
  const Placement& placement() const { return run_.schedule.placement; }

  void Report(int stage, int slice) {
    progress_.Report("building stages", stage, run_.schedule.stages(), "slice", slice,
                     run_.schedule.slices);
  }

  // Sets examples of the stage's inputs, unless the stage before has left them.
  Status SetExamples(int model_stage, const TorchStageOptions& options) {
    if (options.schedule.first) examples_.inputs = {tokens_};
    if (!examples_.inputs.empty()) return {};
    PENSTOCK_TRY(
        examples_.inputs,
        ExampleInputs(config_, std::span(pipeline_.ranges).first(model_stage), tokens_.size(1)));
    for (at::Tensor& input : examples_.inputs) {
      input = input.detach().to(pipeline_.device).requires_grad_(input.requires_grad());
    }
    return {};
  }

  LayerRange RangeOf(int stage) const {
    return WithParts(pipeline_.ranges[placement().model_stage(stage)], config_, run_.schedule,
                     placement().rank_of(stage), plane_);
  }

  // Returns the first stage of the model that differs from this one only in its weights.
  int KindOf(int stage) const {
    const LayerRange range = RangeOf(stage);
    int kind = 0;
    while (!AreAlike(config_.model, RangeOf(kind), range)) ++kind;
    return kind;
  }

  // Builds the modules with their weights. Only now, because earlier stages may have freed all but
  // a shard of theirs.
  Result<StageToBuild> MakeModules(int stage, TorchStageOptions options) {
    const int chain = options.replicas.chain;
    LanguageModel& model = chain == 0 ? pipeline_.model : pipeline_.replicas[chain - 1];
    const LayerRange range = RangeOf(stage);
    auto& module = model.stages[placement().model_stage(stage)];
    PENSTOCK_TRY(module, BuildStage(config_.model, range));
    builder_.Join(stage, options);
    options.tensor = {planes_.PlaceOf(plane_, Axis::kTensor), PartsOf(*module)};
    if (config_.precision == "bf16") {
      PENSTOCK_TRY(options.working, CastStage(*module, config_.model, range, at::kBFloat16));
      MoveStage(*options.working, pipeline_.device);
    }
    MoveStage(*module, pipeline_.device);
    options.rank.vocabulary = VocabularyOfStage(pipeline_.vocabulary, run_.schedule, stage);
    return StageToBuild{options.working ? options.working : module, module, examples_,
                        std::move(options)};
  }

  Result<std::shared_ptr<Optimizer>> MakeOptimizer(const StageModule& module,
                                                   const TorchStageOptions& options) const {
    const int updates_per_step =
        options.schedule.microbatches / options.schedule.versions.microbatches_per_update;
    PENSTOCK_TRY(std::unique_ptr<MatrixExchange> exchange,
                 MakeExchange(config_, ParametersOf(module), options));
    return std::make_shared<Optimizer>(pipeline_.rate, updates_per_step, std::move(exchange),
                                       options.rank.shards->tensor.get());
  }

  const RunContext& run_;
  const TrainConfig& config_;
  Mesh planes_;
  int plane_;
  LocalRanks ranks_;
  BatchSource source_;  // of the plane
  Pipeline& pipeline_;
  StageBuilder& builder_;
  at::Tensor tokens_;
  StageExamples examples_;
  StartProgress progress_;
};

}  // namespace

Result<Pipeline> BuildPipeline(const TrainConfig& config, const Schedule& schedule,
                               const BatchSource& source) {
  Collectives alone(nullptr);
  const LocalRanks ranks(MeshOfPlanes(config.parallel, schedule).ranks());
  return BuildPipeline({config, schedule, alone, ranks, {.log = nullptr}}, source);
}

namespace {

// The groups that connect the planes.
struct GroupsOfPlanes {
  PlaneGroups tensor, context;

  // Moves the ends of a rank of the mesh.
  void Take(int mesh_rank, RankShards& to) {
    if (!tensor.empty()) to.tensor = std::move(tensor[Index(mesh_rank)]);
    if (!context.empty()) to.context = std::move(context[Index(mesh_rank)]);
  }
};

// Builds one plane. Takes its ends of the groups.
Result<Pipeline> BuildPlane(const RunContext& run, int plane, const BatchSource& source,
                            const std::shared_ptr<LearningRate>& rate, c10::Device device,
                            GroupsOfPlanes& groups) {
  const TrainConfig& config = run.config;
  const Schedule& schedule = run.schedule;
  const int length = schedule.placement.chain_length();
  Pipeline pipeline;
  const LanguageModel empty{config.model, std::vector<std::shared_ptr<StageModule>>(Index(length))};
  pipeline.model = empty;
  pipeline.replicas.assign(Index(schedule.placement.replicas() - 1), empty);
  pipeline.device = device;
  const LocalRanks ranks = run.RanksOf(plane);
  PENSTOCK_TRY(StageBuilder builder,
               StageBuilder::Make(schedule, config.parallel, OffloadFolder(config), ranks,
                                  run.processes.group(),
                                  {pipeline.device, config.device_graphs, config.device_parts}));
  pipeline.zero = builder.zero();
  pipeline.replicas_per_shard = builder.replicas_per_shard();
  pipeline.saves = Planes(config.parallel).PlaceOf(plane, Axis::kContext) == 0;
  pipeline.rank_shards = builder.rank_shards();
  for (const int rank : ranks.here()) {
    groups.Take(rank * run.planes() + plane, *pipeline.rank_shards[Index(rank)]);
  }
  pipeline.recorders = builder.recorders();
  pipeline.rate = rate;
  PENSTOCK_TRY(pipeline.ranges, StageRanges(config, length));
  pipeline.shared = SharedParameters(config.model, pipeline.ranges);
  PENSTOCK_TRY_STATUS(CheckShared(pipeline.shared, schedule));
  PENSTOCK_TRY(pipeline.vocabulary, MakeVocabularyShards(run, source, pipeline.device));
  PipelineBuilder stages(run, plane, source, pipeline, builder);
  for (int stage = 0; stage < schedule.stages() && !run.stops(); ++stage) {
    PENSTOCK_TRY_STATUS(stages.Add(stage));
  }
  return pipeline;
}

}  // namespace

Result<Pipeline> BuildPipeline(const RunContext& run, const BatchSource& source) {
  const Mesh planes = Planes(run.config.parallel);
  PENSTOCK_TRY(const c10::Device device, OpenDevice(run.config.device));
  if (planes.ranks() > 1 && run.config.device_parts) {
    return InvalidParameter(
        "device_parts",
        ": the ranks that parallel.tensor or parallel.context adds have no parts "
        "of the device: set it to false");
  }
  PENSTOCK_TRY(const std::optional<LinkSpeed> link, LinkOf(run.config.parallel));
  const auto groups_along = [&](Axis axis) {
    return MakePlaneGroups(MeshOfPlanes(run.config.parallel, run.schedule), axis, run.ranks,
                           run.processes.group(), device, link);
  };
  GroupsOfPlanes groups;
  PENSTOCK_TRY(groups.tensor, groups_along(Axis::kTensor));
  PENSTOCK_TRY(groups.context, groups_along(Axis::kContext));
  const auto rate =
      std::make_shared<LearningRate>(LearningRate{run.config.optimizer, run.config.steps});
  PENSTOCK_TRY(Pipeline pipeline, BuildPlane(run, 0, source, rate, device, groups));
  for (int plane = 1; plane < planes.ranks(); ++plane) {
    // Planes run on threads of their own, and a source may be used by one.
    const BatchSource own = source.fork ? source.fork() : source;
    PENSTOCK_TRY(pipeline.planes.emplace_back(), BuildPlane(run, plane, own, rate, device, groups));
  }
  return pipeline;
}

namespace {

// Replaces the stage of the model by one with the experts of all ranks, whole matrices and whole
// tables of the vocabulary.
void ReplaceStage(Pipeline& pipeline, std::size_t index, const std::vector<NamedTensor>& gathered) {
  auto& module = pipeline.model.stages[index];
  const auto own = module->named_parameters();
  LayerRange range = pipeline.ranges[index];
  range.sharded_vocabulary = false;
  auto whole = BuildUninitializedStage(pipeline.model.config, range).value();
  MoveStage(*whole, pipeline.device);
  for (auto& parameter : whole->named_parameters()) {
    const auto found = std::ranges::find(gathered, parameter.key(), &NamedTensor::name);
    const bool is_own = found == gathered.end();
    parameter.value().set_data(is_own ? own[parameter.key()].detach() : found->tensor);
  }
  pipeline.replaced.resize(pipeline.ranges.size());
  pipeline.replaced[index] = std::exchange(module, std::move(whole));
}

// A stage in a plane, and its end of the group of the planes' ranks; null with one plane.
struct StageOfPlane {
  const StageModule& module;
  const std::vector<NamedTensor>& experts;  // of all ranks
  GroupEnd* tensor;

  // Returns a parameter with the experts of all ranks.
  at::Tensor Gathered(const std::string& name) const {
    const auto found = std::ranges::find(experts, name, &NamedTensor::name);
    return found == experts.end() ? module.named_parameters()[name].detach() : found->tensor;
  }
};

// Returns the stage in the planes whose rank of it is on this process.
std::vector<StageOfPlane> PlanesHere(const Pipeline& pipeline, const Schedule& schedule,
                                     int stage) {
  std::vector<StageOfPlane> here;
  const std::size_t rank = Index(schedule.placement.rank_of(stage));
  for (int plane = 0; plane <= std::ssize(pipeline.planes); ++plane) {
    const Pipeline& of = pipeline.Plane(plane);
    if (of.stages[Index(stage)] == nullptr) continue;
    here.push_back({*of.model.stages[Index(stage)], of.stages[Index(stage)]->AllExperts(),
                    of.rank_shards[rank]->tensor.get()});
  }
  return here;
}

// Gathers the matrices of a stage that planes divide, on all its ranks. Returns them, and the
// experts, as the first of these here has them. Requires: each plane has gathered its shards.
std::vector<NamedTensor> WholeTensors(const std::vector<StageOfPlane>& here) {
  const at::NoGradGuard no_gradients;
  std::vector<NamedTensor> whole;
  for (const auto& [name, part] : PartsOf(here.front().module)) {
    if (part.parts == 1) continue;
    std::vector<RankGroup::Ticket> tickets;
    for (const StageOfPlane& each : here) {
      tickets.push_back(StartGather(*each.tensor, each.Gathered(name)));
    }
    std::vector<at::Tensor> all;
    for (std::size_t i = 0; i < here.size(); ++i) {
      const at::Tensor of_ranks = here[i].tensor->Wait(tickets[i]);
      for (int rank = 0; i == 0 && rank < of_ranks.size(0); rank += part.copies) {
        all.push_back(of_ranks[rank]);
      }
    }
    whole.push_back({name, part.Join(all)});
  }
  const std::vector<NamedTensor>& experts = here.front().experts;
  whole.insert(whole.end(), experts.begin(), experts.end());  // joined ones come first
  return whole;
}

// Replaces the stages of which ranks have parts.
void ReplaceDividedStages(Pipeline& pipeline, const Schedule& schedule) {
  for (int stage = 0; stage < schedule.placement.chain_length(); ++stage) {
    const std::vector<StageOfPlane> here = PlanesHere(pipeline, schedule, stage);
    if (here.empty()) continue;
    const std::vector<NamedTensor> whole = WholeTensors(here);
    const bool is_divided = !pipeline.planes.empty() || !whole.empty();
    if (is_divided && pipeline.stages[Index(stage)] != nullptr) {
      ReplaceStage(pipeline, Index(stage), whole);
    }
  }
}

// Gathers what the replicas of one plane divide.
void GatherShards(Pipeline& plane, const Schedule& schedule, bool replicas) {
  for (const auto& stage : plane.stages) {
    if (stage != nullptr) stage->StartGather();
  }
  for (std::size_t stage = 0; stage < plane.stages.size(); ++stage) {
    const bool keeps = replicas || static_cast<int>(stage) < schedule.placement.chain_length();
    if (plane.stages[stage] != nullptr) plane.stages[stage]->FinishGather(keeps);
  }
}

}  // namespace

void GatherWeights(Pipeline& pipeline, const Schedule& schedule, bool replicas) {
  for (Pipeline& plane : pipeline.planes) GatherShards(plane, schedule, replicas);
  GatherShards(pipeline, schedule, replicas);
  ReplaceDividedStages(pipeline, schedule);
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
  for (Pipeline& plane : pipeline.planes) DropGatheredWeights(plane);
  for (const auto& stage : pipeline.stages) {
    if (stage != nullptr) stage->DropGathered();
  }
  for (std::size_t stage = 0; stage < pipeline.replaced.size(); ++stage) {
    if (pipeline.replaced[stage])
      pipeline.model.stages[stage] = std::move(pipeline.replaced[stage]);
  }
}

NamedState RankState(const Pipeline& pipeline, const Schedule& schedule, int mesh_rank) {
  const int planes = static_cast<int>(pipeline.planes.size()) + 1;
  const int plane = mesh_rank % planes;
  const Pipeline& own = pipeline.Plane(plane);
  NamedState state;
  if (!own.saves) return state;
  for (const int stage : schedule.placement.stages_of(mesh_rank / planes)) {
    if (!own.IsFirstOfShard(stage / schedule.placement.chain_length())) continue;
    const std::size_t index = stage;
    std::set<std::string> saved_elsewhere;
    for (const SharedParameter& parameter : own.shared) {
      if (parameter.stages.front() != stage) saved_elsewhere.insert(parameter.name);
    }
    for (const NamedParameter& parameter : own.stages[index]->Parameters()) {
      if (plane > 0 && !parameter.part) saved_elsewhere.insert(parameter.name);
    }
    for (const NamedParameter& parameter : own.stages[index]->Parameters()) {
      if (saved_elsewhere.contains(parameter.name)) continue;
      state.emplace_back(parameter.name, parameter.value, parameter.layout);
    }
    const NamedState kept = OptimizerState(*own.optimizers[index], saved_elsewhere);
    state.insert(state.end(), kept.begin(), kept.end());
  }
  return state;
}

Result<int> RestorePipeline(Checkpoint& from, Pipeline& pipeline) {
  NamedState state;
  for (const auto& stage : pipeline.stages) {
    if (stage == nullptr) continue;
    for (const NamedParameter& each : stage->Restored()) {
      state.emplace_back(each.name, each.value, each.layout);
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
        state.emplace_back(name, each.values, each.layout);
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
  for (Pipeline& plane : pipeline.planes) {
    PENSTOCK_TRY([[maybe_unused]] const int the_same, RestorePipeline(from, plane));
  }
  return fresh;
}

}  // namespace penstock
