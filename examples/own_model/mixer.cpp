// Mixer: a language model without attention. Each layer mixes a token with a decaying average of
// the tokens before it, then runs a feed-forward layer. Its loss smooths labels.
//
//   state[s] = sum over t <= s of decay^(s - t) x[t]
#include "mixer.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/pow.h>
#include <penstock/model/init.h>
#include <penstock/model/layers.h>

#include <cmath>
#include <vector>

namespace {

using penstock::Changes;
using penstock::LayerRange;
using penstock::ModelConfig;
using torch::Tensor;

// The configuration keys model.decay and model.smoothing.
struct MixerOptions : penstock::ModelOptions {
  double decay = 0.7;
  double smoothing = 0.05;

  std::vector<penstock::Field> Fields() override {
    return {
        {"decay", &decay, Changes::kModel, "Weight of a token for the next one", {.most = 0.999}},
        {"smoothing",
         &smoothing,
         Changes::kPrograms,
         "Share of the label spread over all tokens",
         {.most = 0.5}},
    };
  }
};

class Layer : public torch::nn::Module {
 public:
  explicit Layer(std::int64_t dim) {
    norm_ = register_module("norm", std::make_shared<penstock::RmsNorm>(dim, 1e-5));
    up_ = register_module("up", std::make_shared<penstock::Projection>(dim, 4 * dim));
    down_ = register_module("down", std::make_shared<penstock::Projection>(4 * dim, dim));
  }

  Tensor forward(const Tensor& input, const Tensor& average) {
    const Tensor mixed = at::matmul(average, norm_->forward(input));
    return input + down_->forward(at::gelu(up_->forward(mixed)));
  }

 private:
  std::shared_ptr<penstock::RmsNorm> norm_;
  std::shared_ptr<penstock::Projection> up_, down_;
};

class MixerStage : public penstock::StageModule {
 public:
  MixerStage(const ModelConfig& config, const MixerOptions& options, const LayerRange& range)
      : smoothing_(options.smoothing) {
    const Tensor positions = at::arange(config.sequence, at::kFloat);
    const Tensor distance = positions.unsqueeze(1) - positions.unsqueeze(0);
    average_ = register_buffer("average", at::pow(options.decay, distance).tril());
    if (range.embedding) {
      embedding_ = register_module(
          "embedding", std::make_shared<penstock::Embedding>(config.vocabulary, config.dim));
    }
    layers_ = penstock::RegisterLayers<Layer>(*this, range, config.dim);
    if (range.head) {
      head_ = register_module(
          "head", std::make_shared<penstock::Projection>(config.dim, config.vocabulary));
    }
  }

  Tensor forward(Tensor input) override {
    Tensor hidden = embedding_ ? embedding_->forward(input) : std::move(input);
    const std::int64_t length = hidden.size(1);
    const Tensor average =
        average_.narrow(0, 0, length).narrow(1, 0, length).to(hidden.scalar_type());
    for (const auto& layer : layers_) hidden = layer->forward(hidden, average);
    return head_ ? head_->forward(hidden) : hidden;
  }

  // Smooths labels in training only, so that the reported loss is the plain cross-entropy.
  Tensor Loss(std::span<const Tensor> outputs, const Tensor& targets) override {
    const Tensor logits = outputs.front().to(at::kFloat);
    return at::cross_entropy_loss(logits.reshape({-1, logits.size(-1)}), targets.reshape({-1}), {},
                                  at::Reduction::Mean, -100, is_training() ? smoothing_ : 0);
  }

 private:
  double smoothing_;
  Tensor average_;  // [sequence, sequence], lower triangular
  std::shared_ptr<penstock::Embedding> embedding_;
  std::vector<std::shared_ptr<Layer>> layers_;
  std::shared_ptr<penstock::Projection> head_;
};

void Initialize(const ModelConfig& config, std::string_view name, Tensor& value,
                const at::Generator& generator) {
  if (value.dim() == 1) {
    value.fill_(1);
    return;
  }
  const double deviation = 1 / std::sqrt(static_cast<double>(value.size(1)));
  value.normal_(0,
                name.ends_with("down.weight")
                    ? penstock::ResidualDeviation(deviation, config.layers)
                    : deviation,
                generator);
}

}  // namespace

penstock::ModelEntry Mixer() {
  penstock::ModelEntry model;
  model.name = "mixer";
  model.summary = "a decaying average in place of attention, smoothed labels";
  model.options = penstock::MakeOptions<MixerOptions>;
  model.build = [](const ModelConfig& config, const LayerRange& range) {
    return std::make_shared<MixerStage>(config, penstock::OptionsOf<MixerOptions>(config), range);
  };
  model.initialize = Initialize;
  model.first_alike_layer = [](const penstock::ModelConfig&) { return 0; };
  return model;
}
