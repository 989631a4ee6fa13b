#include "train/pipeline.h"

#include <algorithm>

#include "base/mix_bits.h"
#include "train/compiled.h"

namespace penstock {
namespace {

// One tensor a row. A first and a last stage may be on two threads: each reads through its own.
class RowBuffers {
 public:
  RowBuffers(const Sampler& sampler, const TrainConfig& config, std::size_t shift)
      : sampler_(sampler), batch_(config.batch), shift_(shift) {
    for (int row = 0; row < config.pipeline.microbatches; ++row) {
      rows_.push_back(at::empty({config.batch, config.model.sequence}, at::kLong));
    }
  }

  at::Tensor Fill(std::int64_t step, int row) const {
    const at::Tensor& tensor = rows_[static_cast<std::size_t>(row)];
    auto* to = tensor.mutable_data_ptr<std::int64_t>();
    for (int i = 0; i < batch_; ++i) {
      const auto sample = sampler_.Sample(step, static_cast<std::int64_t>(row) * batch_ + i);
      const auto bytes = sample.subspan(shift_, sample.size() - 1);
      to = std::copy(bytes.begin(), bytes.end(), to);
    }
    return tensor;
  }

 private:
  Sampler sampler_;
  int batch_;
  std::size_t shift_;  // 0: tokens; 1: targets
  std::vector<at::Tensor> rows_;
};

}  // namespace

std::vector<Stage*> Pipeline::pointers() const {
  std::vector<Stage*> pointers;
  for (const auto& stage : stages) pointers.push_back(stage.get());
  return pointers;
}

BatchSource MakeBatchSource(const Sampler& sampler, const TrainConfig& config) {
  const auto read = [&](std::size_t shift) {
    const auto buffers = std::make_shared<const RowBuffers>(sampler, config, shift);
    return [buffers](std::int64_t step, int row) { return buffers->Fill(step, row); };
  };
  return {read(0), read(1)};
}

Result<Pipeline> BuildPipeline(const TrainConfig& config, const Schedule& schedule,
                               const BatchSource& source, const Checkpoint* from) {
  Pipeline pipeline;
  PENSTOCK_TRY(pipeline.model,
               LanguageModel::Build(config.model, schedule.stages(), config.pipeline.stage_layers));
  if (from != nullptr) PENSTOCK_TRY_STATUS(SetWeights(*from, pipeline.model));
  pipeline.rate = std::make_shared<LearningRate>(LearningRate{config.optimizer, config.steps});
  PENSTOCK_TRY(const std::vector<LayerRange> ranges,
               SplitLayers(config.model.layers, schedule.stages(), config.pipeline.stage_layers));
  const at::Tensor tokens = at::zeros({config.batch, config.model.sequence}, at::kLong);
  const at::Tensor targets = at::zeros_like(tokens);
  at::Tensor input = tokens;
  for (int stage = 0; stage < schedule.stages(); ++stage) {
    TorchStageOptions options;
    options.first = stage == 0;
    options.last = stage == schedule.stages() - 1;
    options.microbatches = schedule.microbatches;
    options.exact = config.exact;
    options.fuse = config.fuse;
    const auto& module = pipeline.model.stages[static_cast<std::size_t>(stage)];
    if (config.precision == "bf16") {
      PENSTOCK_TRY(
          options.working,
          CastStage(*module, config.model, ranges[static_cast<std::size_t>(stage)], at::kBFloat16));
    }
    if (!config.compiled.empty()) {
      PENSTOCK_TRY(StageProgram program, LoadStageProgram(CompiledFile(config.compiled, stage),
                                                          KeyOfStage(config, stage)));
      options.program = std::make_shared<const StageProgram>(std::move(program));
    }
    PENSTOCK_TRY(options.hold, HeldBytes(config.recompute.hold));
    PENSTOCK_TRY(options.hold_for_weight, HeldBytes(config.recompute.hold_for_weight));
    options.seed = SeedOf(config.seed, static_cast<std::uint64_t>(stage));
    const auto optimizer = std::make_shared<AdamW>(pipeline.rate);
    auto made = TorchStage::Make(
        module, input, targets, source, options,
        [optimizer](std::vector<NamedParameter>& parameters) { optimizer->Update(parameters); });
    if (!made) return tl::unexpected(std::move(made).error());
    pipeline.stages.push_back(*std::move(made));
    optimizer->MakeState(pipeline.stages.back()->Parameters());
    if (from != nullptr) PENSTOCK_TRY_STATUS(SetOptimizer(*from, *optimizer));
    pipeline.optimizers.push_back(optimizer);
    input = pipeline.stages.back()->ExampleOutput();
  }
  return pipeline;
}

NamedState RankState(const Pipeline& pipeline, const Schedule& schedule, int rank) {
  NamedState state;
  for (const int stage : schedule.placement.stages_of(rank)) {
    const auto index = static_cast<std::size_t>(stage);
    for (const auto& parameter : pipeline.model.stages[index]->named_parameters()) {
      state.emplace_back(parameter.key(), parameter.value().detach());
    }
    const NamedState kept = OptimizerState(*pipeline.optimizers[index]);
    state.insert(state.end(), kept.begin(), kept.end());
  }
  return state;
}

}  // namespace penstock
