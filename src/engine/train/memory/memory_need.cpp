#include "train/memory/memory_need.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>

#include "base/index.h"
#include "config/replicas.h"
#include "config/shard_vocabulary.h"
#include "config/stage_ranges.h"
#include "config/state_format.h"
#include "graph/capture/shapes_only.h"
#include "graph/device/device_queue.h"
#include "graph/run/memory_plan.h"
#include "model/model.h"
#include "model_spec/state_bytes.h"
#include "runtime/versions.h"
#include "simulate/simulate.h"
#include "train/compiled/compile_stages.h"
#include "train/memory/shard_bytes.h"
#include "train/model_fits.h"

namespace penstock {
namespace {

constexpr double kTokenBytes = 8;

// Stages of one kind differ only in their number of layers.
enum class Kind : int { kFirst, kMiddle, kLast, kOnly };

Kind KindOf(const LayerRange& range) {
  if (range.embedding) return range.head ? Kind::kOnly : Kind::kFirst;
  return range.head ? Kind::kLast : Kind::kMiddle;
}

struct StageNeed {
  double parameters = 0;
  double shared = 0;     // of these, the ones that other stages share
  double saved = 0;      // bytes that a microbatch keeps alive from F to B
  double live = 0;       // likewise from I to W
  double input = 0;      // bytes that a recomputed microbatch keeps
  double workspace = 0;  // additional bytes of its largest action

  StageNeed operator+(const StageNeed& more) const {
    return {parameters + more.parameters, shared + more.shared,
            saved + more.saved,           live + more.live,
            input + more.input,           workspace + more.workspace};
  }
  StageNeed operator*(double factor) const {
    return {parameters * factor, shared * factor, saved * factor,
            live * factor,       input * factor,  workspace * factor};
  }
};

// Returns the index of the stage of this kind in its small model.
int IndexOf(Kind kind) { return kind == Kind::kOnly ? 0 : static_cast<int>(kind); }

// Returns a small model with one or three stages. Its stage of this kind has the given number of
// layers.
TrainConfig SmallConfig(const TrainConfig& config, Kind kind, std::int64_t layers) {
  TrainConfig small = config;
  small.pipeline = {};
  small.pipeline.schedule = "gpipe";
  small.data.lengths.clear();  // the need of the longest microbatches
  small.parallel = {};
  small.parallel.expert = small.parallel.data = config.parallel.expert;
  small.parallel.shard_vocabulary = config.parallel.shard_vocabulary;
  small.parallel.tensor = config.parallel.tensor;
  small.parallel.expert_tensor = config.parallel.expert_tensor;
  small.parallel.context = config.parallel.context;
  small.parallel.context_exchange = config.parallel.context_exchange;
  small.parallel.sequence_parallel = config.parallel.sequence_parallel;
  small.parallel.gather_again = config.parallel.gather_again;
  small.pipeline.microbatches = config.parallel.expert;
  small.pipeline.ranks = kind == Kind::kOnly ? 1 : 3;
  small.pipeline.stages = small.pipeline.ranks;
  small.pipeline.stage_layers.assign(small.pipeline.ranks, 1);
  small.pipeline.stage_layers[IndexOf(kind)] = layers;
  small.model.layers = small.pipeline.ranks - 1 + layers;
  return small;
}

Result<StageNeed> CountParameters(const TrainConfig& config, Kind kind, std::int64_t layers) {
  const TrainConfig small = SmallConfig(config, kind, layers);
  PENSTOCK_TRY(const std::vector<LayerRange> ranges, StageRanges(small, small.pipeline.stages));
  LayerRange range = WithPlane(ranges[IndexOf(kind)], small);
  range.expert_ranks = config.parallel.expert;
  PENSTOCK_TRY(const std::shared_ptr<StageModule> module, BuildStage(small.model, range));
  StageNeed need;
  const auto parameters = module->named_parameters();
  for (const auto& parameter : parameters) {
    need.parameters += static_cast<double>(parameter.value().numel());
  }
  for (const SharedParameter& shared : SharedParameters(small.model, ranges)) {
    const at::Tensor* const own = parameters.find(shared.name);
    if (own != nullptr) need.shared += static_cast<double>(own->numel());
  }
  return need;
}

Result<StageNeed> Capture(const TrainConfig& config, Kind kind, std::int64_t layers) {
  CompileOptions options;
  options.exact = config.exact;
  // As CompileSlice does for slices.
  if (config.pipeline.slices > 1) options.disabled = {"attention_by_matmul"};
  PENSTOCK_TRY(const StageGraphs graphs,
               GraphsOfStage(SmallConfig(config, kind, layers), IndexOf(kind), options));
  const StageProgram program = MakeStageProgram(graphs);
  PENSTOCK_TRY(StageNeed need, CountParameters(config, kind, layers));
  need.saved = static_cast<double>(program.saved_bytes);
  need.live = static_cast<double>(program.live_bytes);
  for (const StagePort& input : program.inputs) {
    need.input += static_cast<double>(BytesOf(input.type));
  }
  for (const Graph* graph : {&graphs.forward, &graphs.backward_input, &graphs.backward_weight}) {
    need.workspace = std::max(need.workspace, static_cast<double>(PlanMemory(*graph).arena_bytes));
  }
  return need;
}

// The needs of stages, measured with one and two layers per kind. Stages of one kind and number of
// layers are alike, and each layer after the first adds the same amount.
class StageNeeds {
 public:
  using Measure = Result<StageNeed> (*)(const TrainConfig& config, Kind kind, std::int64_t layers);

  StageNeeds(const TrainConfig& config, Measure measure) : config_(config), measure_(measure) {}

  Result<StageNeed> Of(const LayerRange& range) {
    const Kind kind = KindOf(range);
    const auto layers = static_cast<double>(range.end - range.begin);
    PENSTOCK_TRY(const StageNeed one, Measured(kind, 1));
    if (layers < 2) return one;
    PENSTOCK_TRY(const StageNeed two, Measured(kind, 2));
    StageNeed all = one + (two + one * -1) * (layers - 1);
    all.workspace = two.workspace;  // of one action, which frees memory as it runs
    return all;
  }

 private:
  Result<StageNeed> Measured(Kind kind, std::int64_t layers) {
    const auto key = std::pair(kind, layers);
    const auto found = measured_.find(key);
    if (found != measured_.end()) return found->second;
    PENSTOCK_TRY(const StageNeed need, measure_(config_, kind, layers));
    return measured_.emplace(key, need).first->second;
  }

  const TrainConfig& config_;
  const Measure measure_;
  std::map<std::pair<Kind, std::int64_t>, StageNeed> measured_;
};

double TokensOf(const TrainConfig& config) {
  return static_cast<double>(config.batch) * static_cast<double>(config.model.sequence);
}

// Calls add(stage, rows) for each rank's rows of a sharded vocabulary and the stage that has them.
template <class Add>
void ForEachShard(const TrainConfig& config, const Schedule& schedule, Add&& add) {
  for (int rank = 0; rank < schedule.ranks() && schedule.vocabulary; ++rank) {
    const RowRange rows = RowsOfRank(config.model.vocabulary, schedule.ranks(), rank);
    add(schedule.placement.stages_of(rank).front(), static_cast<double>(rows.count()));
  }
}

// Returns the needs by stage of the model.
Result<std::vector<StageNeed>> NeedsOfStages(const TrainConfig& config, const Schedule& schedule,
                                             StageNeeds::Measure measure) {
  const ShapesOnly shapes;
  PENSTOCK_TRY(const std::vector<LayerRange> ranges,
               StageRanges(config, schedule.placement.chain_length()));
  StageNeeds of(config, measure);
  std::vector<StageNeed> needs;
  for (const LayerRange& range : ranges) {
    PENSTOCK_TRY(const StageNeed need, of.Of(range));
    needs.push_back(need);
  }
  if (!schedule.vocabulary) return needs;
  PENSTOCK_TRY(const VocabularyTables tables, VocabularyTablesOf(config.model));
  const double of_row =
      static_cast<double>(config.model.dim) * static_cast<double>(tables.names().size());
  ForEachShard(config, schedule,
               [&](int stage, double rows) { needs[Index(stage)].parameters += rows * of_row; });
  return needs;
}

// The ranks of the schedule that this process runs, once for each plane in which it does.
using RanksHere = std::vector<int>;

RanksHere RanksInPlanes(const TrainConfig& config, const LocalRanks& ranks) {
  RanksHere here;
  for (const int rank : ranks.here()) here.push_back(rank / Planes(config.parallel).ranks());
  return here;
}

// Returns the number of planes in which this process has ranks.
double PlanesHere(const TrainConfig& config, const LocalRanks& ranks) {
  std::set<int> planes;
  for (const int rank : ranks.here()) planes.insert(rank % Planes(config.parallel).ranks());
  return static_cast<double>(planes.size());
}

// Returns the sum of the ranks' peaks. Simulates the schedule, because the order of each lane
// determines which microbatches are in flight.
Result<double> ActivationPeaks(const TrainConfig& config, const Schedule& schedule,
                               const RanksHere& ranks, const std::vector<StageNeed>& needs) {
  Costs costs;
  const auto slices = static_cast<double>(schedule.slices);
  std::vector<double> workspace(schedule.lanes.size());
  for (int stage = 0; stage < schedule.stages(); ++stage) {
    const std::size_t index = schedule.placement.model_stage(stage);
    const StageNeed& need = needs[index];
    StageCosts& of_stage = costs.stages.emplace_back();
    of_stage.activation = need.saved / slices;
    of_stage.activation_after_i = need.live / slices;
    of_stage.input_activation = need.input / slices;
    double& largest = workspace[schedule.placement.rank_of(stage)];
    largest = std::max(largest, need.workspace / slices);
  }
  ForEachShard(config, schedule, [&](int stage, double rows) {
    costs.stages[Index(stage)].softmax = TokensOf(config) * rows * kFp32StateBytes;
  });
  costs.steps_wait_for_all = UpdateRuleOf(config.optimizer).needs_norm();
  PENSTOCK_TRY(const SimulationResult result, Simulate(schedule, costs));
  double sum = 0;
  for (const int rank : ranks) sum += result.ranks[rank].peak_memory + workspace[rank];
  return sum;
}

// Calls add(stage, needs of the stage) for the stages of the ranks.
template <class Add>
void ForEachStage(const Schedule& schedule, const RanksHere& ranks,
                  const std::vector<StageNeed>& needs, Add&& add) {
  for (const int rank : ranks) {
    for (const int stage : schedule.placement.stages_of(rank)) {
      add(stage, needs[Index(schedule.placement.model_stage(stage))]);
    }
  }
}

bool IsPlainAdamW(const OptimizerConfig& config) {
  return config.name == "adamw" && config.groups.empty() && config.ema == 0;
}

// Returns a lower bound of the bytes per parameter: Muon's state is the smallest.
StateFormat LeastFormat(const TrainConfig& config) {
  const bool may_use_muon = config.optimizer.name == "muon" || !config.optimizer.groups.empty();
  return StateFormatOf(config, may_use_muon ? UpdatedBy::kMuon : UpdatedBy::kAdamW);
}

// Adds weights, gradients and optimizer state: all of them, or with shards, what is always in
// memory.
Status AddLeast(const TrainConfig& config, const Schedule& schedule, const RanksHere& ranks,
                const std::vector<StageNeed>& needs, MemoryNeed& total) {
  const StateFormat format = LeastFormat(config);
  const Sharding sharding{ZeroOf(config.parallel, schedule),
                          static_cast<double>(ShardsOfStage(config.parallel, schedule))};
  Status status;
  ForEachStage(schedule, ranks, needs, [&](int stage, const StageNeed& need) {
    const Result<StageVersions> versions = VersionsOf(schedule, stage);
    if (!versions) {
      status = tl::unexpected(versions.error());
      return;
    }
    const StateBytes states = StatesOf(ElementsOf(need.parameters, sharding), format);
    total.weights += states.weights + need.parameters * format.working * versions->older;
    total.gradients += states.gradients;
    total.optimizer += states.optimizer;
  });
  return status;
}

// Adds weights, gradients and optimizer state in shards. Builds the shapes of all layers.
Status AddShards(const TrainConfig& config, const Schedule& schedule, const RanksHere& ranks,
                 MemoryNeed& total) {
  PENSTOCK_TRY(const std::vector<RankBytes> bytes, PredictRankBytes(config, schedule));
  for (const int rank : ranks) {
    total.weights += static_cast<double>(bytes[Index(rank)].weights);
    total.gradients += static_cast<double>(bytes[Index(rank)].gradients);
    total.optimizer += static_cast<double>(bytes[Index(rank)].optimizer);
  }
  return {};
}

// Adds the copies of weights, gradients and optimizer state.
void AddCopies(const TrainConfig& config, const Schedule& schedule, const RanksHere& ranks,
               const std::vector<StageNeed>& needs, MemoryNeed& total) {
  const StateFormat format = StateFormatOf(config);  // Muon's state is smaller
  const bool saves = WritesCheckpoints(config);
  const bool rolls_back = UpdateRuleOf(config.optimizer).steps_early();
  const double of_checkpoint = format.updated() + format.optimizer;
  const int replicas = schedule.placement.replicas();
  const int zero = ZeroOf(config.parallel, schedule);
  const double shards = zero == 0 ? 1 : ShardsOfStage(config.parallel, schedule);
  ForEachStage(schedule, ranks, needs, [&](int, const StageNeed& need) {
    const double count = need.parameters;
    // A replica sends copies of its gradients and of its updated shard.
    if (zero < 2 && replicas > 1) total.gradients += count * format.gradient;
    if (zero == 1 || zero == 2) total.weights += count * format.working / shards;
    // So does a stage for the parameters that it shares.
    total.gradients += need.shared * format.gradient;
    if (rolls_back) total.optimizer += count * of_checkpoint / shards;
    if (saves) total.checkpoint += count * of_checkpoint / replicas;
  });
}

// Suggests how to shrink the larger part: the state of the model, or the activations.
std::string_view Remedy(const TrainConfig& config, const MemoryNeed& need) {
  const double state = need.weights + need.gradients + need.optimizer + need.checkpoint;
  if (state > need.activations + need.batches) {
    return "use a smaller model.dim, model.layers or model.vocabulary";
  }
  if (config.recompute.hold != "all") return "use a smaller batch or model.sequence";
  return "use a smaller batch or model.sequence, or recompute.hold=least";
}

// Each plane has batches of its own.
double BatchBytes(const TrainConfig& config, const LocalRanks& ranks) {
  return PlanesHere(config, ranks) * 2 * kTokenBytes * TokensOf(config) *
         static_cast<double>(config.pipeline.microbatches);
}

// Returns a lower bound without a capture: weights, tokens, and the hidden states of one
// microbatch.
Result<MemoryNeed> LeastNeed(const TrainConfig& config, const Schedule& schedule,
                             const LocalRanks& ranks) {
  MemoryNeed need;
  PENSTOCK_TRY(const auto needs, NeedsOfStages(config, schedule, CountParameters));
  const RanksHere here = RanksInPlanes(config, ranks);
  PENSTOCK_TRY_STATUS(AddLeast(config, schedule, here, needs, need));
  AddCopies(config, schedule, here, needs, need);
  need.batches = BatchBytes(config, ranks);
  need.activations = PlanesHere(config, ranks) * StateFormatOf(config).working * TokensOf(config) *
                     static_cast<double>(config.model.dim);
  return need;
}

Status Compare(const TrainConfig& config, const MemoryNeed& need, const AvailableMemory& allowed,
               std::string_view about) {
  if (need.total() <= static_cast<double>(allowed.bytes)) return {};
  return InvalidArgument(
      "the run needs {} {} of memory ({}), and {} has {}: {}, or max_memory=none to try "
      "anyway",
      about, BytesText(need.total()), need.Text(), allowed.of,
      BytesText(static_cast<double>(allowed.bytes)), Remedy(config, need));
}

}  // namespace

std::string MemoryNeed::Text() const {
  std::string text;
  const auto add = [&](const char* name, double bytes) {
    if (bytes > 0) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, BytesText(bytes));
  };
  add("weights", weights);
  add("gradients", gradients);
  add("optimizer", optimizer);
  add("checkpoint", checkpoint);
  add("activations", activations);
  add("batches", batches);
  return text;
}

Result<MemoryNeed> EstimateMemory(const TrainConfig& config, const Schedule& schedule,
                                  const LocalRanks& ranks) {
  MemoryNeed need;
  PENSTOCK_TRY(const auto needs, NeedsOfStages(config, schedule, Capture));
  const bool is_even = ZeroOf(config.parallel, schedule) == 0 && IsPlainAdamW(config.optimizer);
  const RanksHere here = RanksInPlanes(config, ranks);
  PENSTOCK_TRY_STATUS(is_even ? AddLeast(config, schedule, here, needs, need)
                              : AddShards(config, schedule, here, need));
  AddCopies(config, schedule, here, needs, need);
  need.batches = BatchBytes(config, ranks);
  PENSTOCK_TRY(need.activations, ActivationPeaks(config, schedule, here, needs));
  return need;
}

Result<std::string> CheckMemoryNeed(const TrainConfig& config, const Schedule& schedule,
                                    const LocalRanks& ranks) {
  if (config.max_memory == "none") return "memory: not checked";
  PENSTOCK_TRY(AvailableMemory allowed, AllowedMemory(config.max_memory));
  PENSTOCK_TRY(const c10::Device device, OpenDevice(config.device));
  if (!device.is_cpu() && config.max_memory == "auto") {
    const std::optional<std::int64_t> free = FreeMemory(device);
    if (!free) return fmt::format("memory: not checked on {}", device.str());
    allowed = {*free, device.str()};
  }
  try {
    // Check the lower bound first: capturing a model that cannot fit would overflow sizes.
    PENSTOCK_TRY(const MemoryNeed least, LeastNeed(config, schedule, ranks));
    PENSTOCK_TRY_STATUS(Compare(config, least, allowed, "at least"));
    PENSTOCK_TRY(const MemoryNeed need, EstimateMemory(config, schedule, ranks));
    PENSTOCK_TRY_STATUS(Compare(config, need, allowed, "about"));
    return fmt::format("memory: about {} needed ({}), {} has {}", BytesText(need.total()),
                       need.Text(), allowed.of, BytesText(static_cast<double>(allowed.bytes)));
  } catch (const c10::Error&) {
    // A tensor has more bytes than 63 bits can count.
    return InvalidArgument(
        "the run needs more than 8 EiB of memory, and {} has {}: use a smaller model.dim, "
        "model.hidden, model.vocabulary, model.sequence or batch",
        allowed.of, BytesText(static_cast<double>(allowed.bytes)));
  }
}

}  // namespace penstock
