#include "train/memory/shard_bytes.h"

#include <algorithm>

#include "base/index.h"
#include "config/parameter_rules.h"
#include "config/replicas.h"
#include "config/shard_vocabulary.h"
#include "config/stage_ranges.h"
#include "config/state_format.h"
#include "graph/capture/shapes_only.h"
#include "model/model.h"
#include "model/tensor_parallel.h"
#include "model_spec/state_bytes.h"
#include "runtime/program.h"
#include "runtime/versions.h"
#include "train/optimizer/matrix_exchange.h"
#include "train/optimizer/muon.h"
#include "train/shards/rank_shards.h"
#include "train/shards/shards.h"

namespace penstock {
namespace {

constexpr int kNoStage = -1;

// The parameters of a stage of the model.
struct StageParameters {
  std::vector<ExchangedParameter> about;
  std::vector<std::vector<std::int64_t>> whole_shapes;  // of parts of matrices (ParameterPart)
  std::vector<std::int64_t> elements;
  std::vector<Division> divisions;
};

// What one stage of the schedule holds, in bytes.
struct StageBytes {
  std::int64_t weights = 0, gradients = 0, optimizer = 0;  // all the time
  std::int64_t gathered = 0;                               // from UNSHARD to RESHARD
  std::int64_t unreduced = 0;                              // until REDUCE_GRAD is complete
  std::int64_t reduced = 0;                                // while it runs
};

double ToDouble(std::int64_t elements) { return static_cast<double>(elements); }

Result<std::vector<StageParameters>> ParametersOfStages(const TrainConfig& config, int length) {
  const ShapesOnly shapes;
  PENSTOCK_TRY(const std::vector<LayerRange> ranges, StageRanges(config, length));
  const std::vector<SharedParameter> shared = SharedParameters(config.model, ranges);
  const ParameterRules rules(config.optimizer);
  std::vector<StageParameters> stages;
  for (LayerRange range : ranges) {
    range = WithPlane(range, config);
    range.expert_ranks = config.parallel.expert;
    PENSTOCK_TRY(const std::shared_ptr<StageModule> module, BuildStage(config.model, range));
    const std::map<std::string, ParameterPart> parts = PartsOf(*module);
    StageParameters& stage = stages.emplace_back();
    for (const auto& parameter : module->named_parameters()) {
      const std::vector<std::int64_t> shape = parameter.value().sizes().vec();
      stage.about.push_back({parameter.key(), shape, rules.Of(parameter.key(), shape.size()).muon});
      const auto part = parts.find(parameter.key());
      stage.whole_shapes.push_back(part == parts.end() ? shape
                                                       : part->second.LayoutOf(shape).shape());
      stage.elements.push_back(parameter.value().numel());
      const bool is_shared = std::ranges::any_of(
          shared, [&](const SharedParameter& one) { return one.name == parameter.key(); });
      const bool is_of_experts =
          range.expert_ranks > 1 && IsPerExpert(config.model, parameter.key());
      stage.divisions.push_back(is_shared       ? Division::kWhole
                                : is_of_experts ? Division::kExperts
                                                : Division::kShards);
    }
  }
  return stages;
}

// Adds the rows of a sharded vocabulary to the stages that have them.
Status AddTables(const TrainConfig& config, const Schedule& schedule,
                 std::vector<StageParameters>& stages) {
  if (!schedule.vocabulary) return {};
  PENSTOCK_TRY(const VocabularyTables tables, VocabularyTablesOf(config.model));
  for (int rank = 0; rank < schedule.ranks(); ++rank) {
    const RowRange rows = RowsOfRank(config.model.vocabulary, schedule.ranks(), rank);
    StageParameters& stage = stages[Index(schedule.placement.stages_of(rank).front())];
    for (const std::string& name : tables.names()) {
      stage.about.push_back({name, {rows.count(), config.model.dim}, false});
      stage.whole_shapes.push_back(stage.about.back().shape);
      stage.elements.push_back(rows.count() * config.model.dim);
      stage.divisions.push_back(Division::kShards);
    }
  }
  return {};
}

class Predictor {
 public:
  Predictor(const TrainConfig& config, const Schedule& schedule)
      : config_(config),
        schedule_(schedule),
        zero_(ZeroOf(config.parallel, schedule)),
        per_shard_(ReplicasPerShard(config.parallel, schedule)) {}

  Result<StageBytes> Of(int stage, const StageParameters& parameters) const {
    const Placement& placement = schedule_.placement;
    const Shards layout(parameters.elements, parameters.divisions,
                        ShardsOfStage(config_.parallel, schedule_));
    const StateFormat format = StateFormatOf(config_);
    const bool cast = format.master > 0;
    const bool masters_in_shards =
        (cast || zero_ == 3) && HasReplicaGroups(config_.parallel, schedule_);
    PENSTOCK_TRY(const StageVersions versions, VersionsOf(schedule_, stage));
    std::int64_t whole_weights = 0, masters = 0;
    for (std::size_t i = 0; i < parameters.elements.size(); ++i) {
      const bool whole = parameters.divisions[i] != Division::kShards;
      if (whole || zero_ < 3) whole_weights += parameters.elements[i];
      if (whole || !masters_in_shards) masters += parameters.elements[i];
    }
    const std::int64_t shard = layout.shard_elements();
    if (masters_in_shards) masters += shard;
    std::int64_t gradients = layout.end();
    if (zero_ >= 2) gradients += shard - layout.rest();
    const std::int64_t weights = whole_weights + (zero_ == 3 ? shard : 0);
    const StateBytes states =
        StatesOf({ToDouble(weights), ToDouble(masters), ToDouble(gradients)}, format);
    const auto of_elements = [](std::int64_t elements, double bytes) {
      return elements * static_cast<std::int64_t>(bytes);
    };
    StageBytes bytes;
    bytes.weights = static_cast<std::int64_t>(states.weights) +
                    of_elements(whole_weights, format.working) * versions.older;
    bytes.gradients = static_cast<std::int64_t>(states.gradients);
    if (zero_ == 3) bytes.gathered = of_elements(layout.rest(), format.working);
    if (zero_ >= 2) {
      bytes.unreduced = of_elements(layout.rest(), format.gradient);
      bytes.reduced = of_elements(shard, format.gradient);
    }
    bytes.optimizer = OptimizerBytes(layout, parameters, stage / placement.chain_length());
    return bytes;
  }

  // Follows the rank's program.
  Result<RankBytes> Peaks(int rank, const std::vector<StageBytes>& stages) const {
    RankShards held;
    for (const int stage : schedule_.placement.stages_of(rank)) {
      held.weights.Add(stages[stage].weights);
      held.gradients.Add(stages[stage].gradients);
      held.optimizer.Add(stages[stage].optimizer);
    }
    PENSTOCK_TRY(const Program program, MakeProgram(schedule_, rank));
    std::vector<bool> has_gradients(schedule_.stages());
    int reducing = kNoStage;
    const auto finish = [&] {
      if (reducing == kNoStage) return;
      held.gradients.Free(stages[reducing].unreduced + stages[reducing].reduced);
      has_gradients[reducing] = false;
      reducing = kNoStage;
    };
    for (const auto& [part, position, ends_pair] : program) {
      const StageBytes& stage = stages[part.stage];
      if (part.op == Op::kUnshard) held.weights.Add(stage.gathered);
      if (part.op == Op::kReshard) held.weights.Free(stage.gathered);
      if (part.op == Op::kStep && reducing == part.stage) finish();
      if (EndsMicrobatch(part.op) && !has_gradients[part.stage]) {
        held.gradients.Add(stage.unreduced);
        has_gradients[part.stage] = true;
      }
      if (part.op != Op::kReduceGrad) continue;
      finish();
      reducing = part.stage;
      held.gradients.Add(stages[reducing].reduced);
      // The other replicas in this pipeline get the sum at once.
      if (per_shard_ > 1) finish();
    }
    return RankBytes{held.weights.peak(), held.gradients.peak(), held.optimizer.peak()};
  }

 private:
  // AdamW also has a counter per parameter, Muon the memory for its iterations, and the matrices
  // that shards divide.
  std::int64_t OptimizerBytes(const Shards& layout, const StageParameters& parameters,
                              int chain) const {
    const double adamw = StateFormatOf(config_).optimizer;
    const double muon = StateFormatOf(config_, UpdatedBy::kMuon).optimizer;
    double bytes = 0;
    std::vector<Matrices> matrices;
    const auto add = [&](const Shards::ParameterPiece& piece) {
      const ExchangedParameter& about = parameters.about[piece.parameter];
      const double size = ToDouble(piece.size());
      if (IsRouterBias(about.name)) {
        bytes += config_.optimizer.ema > 0 ? size * kFp32StateBytes : 0;
      } else if (about.orthogonalized) {
        bytes += size * muon;
        matrices.emplace_back(parameters.whole_shapes[piece.parameter]);
      } else {
        bytes += size * adamw + kFp32StateBytes;
      }
    };
    if (zero_ == 0) {
      for (std::size_t i = 0; i < parameters.elements.size(); ++i) {
        add({i, 0, parameters.elements[i]});
      }
    } else {
      for (const Shards::ParameterPiece& piece : layout.pieces(chain / per_shard_)) add(piece);
      for (const Shards::ParameterPiece& piece : layout.unsharded()) add(piece);
      const std::int64_t exchanged =
          layout.shards() * BlockElements(FragmentsOf(layout, parameters.about));
      bytes += ToDouble(exchanged) * kFp32StateBytes;
    }
    return static_cast<std::int64_t>(bytes) + Orthogonalizer::BytesFor(matrices);
  }

  const TrainConfig& config_;
  const Schedule& schedule_;
  const int zero_;
  const int per_shard_;
};

}  // namespace

Result<std::vector<RankBytes>> PredictRankBytes(const TrainConfig& config,
                                                const Schedule& schedule) {
  const int length = schedule.placement.chain_length();
  PENSTOCK_TRY(std::vector<StageParameters> parameters, ParametersOfStages(config, length));
  PENSTOCK_TRY_STATUS(AddTables(config, schedule, parameters));
  const Predictor predictor(config, schedule);
  std::vector<StageBytes> stages;
  for (int stage = 0; stage < schedule.stages(); ++stage) {
    const std::size_t index = schedule.placement.model_stage(stage);
    PENSTOCK_TRY(const StageBytes bytes, predictor.Of(stage, parameters[index]));
    stages.push_back(bytes);
  }
  std::vector<RankBytes> ranks;
  for (int rank = 0; rank < schedule.ranks(); ++rank) {
    PENSTOCK_TRY(const RankBytes peaks, predictor.Peaks(rank, stages));
    ranks.push_back(peaks);
  }
  return ranks;
}

}  // namespace penstock
