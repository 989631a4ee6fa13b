// A decoder of pre-norm blocks: attention with rotary positions, then a feed-forward layer, each
// after RMSNorm and with a residual. Models are decoders with different options (DecoderOptions).
#include <ATen/ops/linear.h>

#include <utility>

#include "graph/ops/random_ops.h"
#include "model/decoder/token_predictor.h"
#include "model/init.h"
#include "model/model_entry.h"

namespace penstock {
namespace {

constexpr std::int64_t kIgnored = -100;  // a target that cross_entropy_loss does not count

RotaryTable RotaryOf(const ModelConfig& config, const DecoderOptions& options) {
  const auto latent = options.Latent(config.dim);
  const std::int64_t size = latent ? latent->rotary_dim : options.AttentionOf(config.dim).head_dim;
  return RotaryTable::Make(config.sequence, size, options.rope_theta, options.rope);
}

class DecoderStage : public StageModule {
 public:
  DecoderStage(const ModelConfig& config, const DecoderOptions& options, const LayerRange& range)
      : rotary_(RotaryOf(config, options)),
        embeds_(range.has_embedding()),
        has_logits_(range.has_logits()),
        document_end_(config.document_end),
        vocabulary_(Cut::Vocabulary(range, config.vocabulary)),
        place_(ContextPlace::Of(range)),
        parts_(embeds_ || !range.divides_tokens ? 1 : range.tensor_ranks),
        predictor_weight_(options.predictor_weight) {
    register_buffer("rotary_cos", rotary_.cos);
    register_buffer("rotary_sin", rotary_.sin);
    // A last stage that needs the embedding has a copy of it under the same name.
    if (embeds_ || (has_logits_ && options.shares_embedding())) {
      embedding_ = register_module(
          "embedding", std::make_shared<Embedding>(config.vocabulary, config.dim, vocabulary_));
    }
    blocks_ = RegisterEachLayer(*this, range, [&](std::int64_t layer) {
      return std::make_shared<DecoderBlock>(layer, config.dim, options, range);
    });
    if (!range.head) return;
    norm_ = register_module(
        "norm", std::make_shared<RmsNorm>(config.dim, options.norm_epsilon, Cut::ByToken(range)));
    if (has_logits_ && !options.tied) {
      head_ = register_module(
          "head", std::make_shared<Projection>(config.dim, config.vocabulary, vocabulary_));
    }
    if (options.predictor == 0) return;
    predictor_ =
        register_module("predictor", std::make_shared<TokenPredictor>(config, options, range));
  }

  torch::Tensor forward(torch::Tensor input) override { return ForwardAll({&input, 1}).front(); }

  bool HasForwardSlice() const override { return true; }
  torch::Tensor ForwardSlice(torch::Tensor input, SequenceContext& context) override {
    TORCH_CHECK(!predictor_ || context.is_whole() || !is_training(),
                "model.predictor needs whole sequences, not slices");
    const torch::Tensor hidden = Hidden(std::move(input), context);
    return has_logits_ ? Logits(hidden) : hidden;
  }

  // A last stage with a predictor also returns what its loss needs: the hidden states, and the
  // starts of documents.
  std::vector<torch::Tensor> ForwardAll(std::span<const torch::Tensor> inputs) override {
    std::vector<torch::Tensor> outputs;
    if (document_end_ < 0) {
      SequenceContext whole;
      outputs = {Hidden(inputs[0], whole)};
    } else {
      const torch::Tensor starts = StartsOf(inputs);
      SequenceContext documents = SequenceContext::OfDocuments(starts);
      outputs = {Hidden(inputs[0], documents), starts};
    }
    if (!has_logits_) return outputs;
    const torch::Tensor logits = Logits(outputs.front());
    if (!predictor_ || !is_training()) return {logits};
    outputs.insert(outputs.begin(), logits);
    return outputs;
  }

  torch::Tensor Loss(std::span<const torch::Tensor> outputs,
                     const torch::Tensor& targets) override {
    torch::Tensor loss = CrossEntropy(outputs.front(), targets);
    if (!predictor_ || !is_training()) return loss;
    return loss + predictor_weight_ * PredictorLoss(outputs, targets);
  }

  void SetLossGradient(double gradient) override {
    for (const auto& block : blocks_) block->SetLossGradient(gradient);
    if (predictor_) predictor_->SetLossGradient(gradient * predictor_weight_);
  }

 private:
  // Returns the output of the last block, normalized in a last stage.
  torch::Tensor Hidden(torch::Tensor input, SequenceContext& context) {
    context.Divide(place_);
    const RotaryTable rotary = context.RotaryOf(rotary_, parts_ * input.size(1));
    torch::Tensor hidden = embeds_ ? embedding_->forward(input) : std::move(input);
    for (const auto& block : blocks_) {
      BeginLayer();
      hidden = block->forward(hidden, rotary, context);
    }
    return norm_ ? norm_->forward(hidden) : hidden;
  }

  // The target of a token is the next one. The last token of a sample has no target two tokens
  // ahead. Context ranks have equally many tokens, so that it stays there, and does not count.
  torch::Tensor PredictorLoss(std::span<const torch::Tensor> outputs,
                              const torch::Tensor& targets) {
    const bool is_divided = place_.ranks > 1;
    const std::int64_t length = targets.size(1) - (is_divided ? 0 : 1);
    const torch::Tensor ahead =
        is_divided ? FollowingTokens(targets, kIgnored, place_) : targets.narrow(1, 1, length);
    // Targets of padding are no tokens.
    const torch::Tensor next =
        embedding_->forward(is_divided ? targets.clamp_min(0) : targets.narrow(1, 0, length));
    const torch::Tensor hidden = outputs[1].narrow(1, 0, length);
    const torch::Tensor starts =
        document_end_ < 0 ? torch::Tensor() : outputs[2].narrow(1, 0, length);
    const torch::Tensor states = predictor_->forward(hidden, next, rotary_, starts);
    return CrossEntropy(Logits(states), ahead);
  }

  // Returns the start of each token's document: computed by the first stage, then passed on.
  torch::Tensor StartsOf(std::span<const torch::Tensor> inputs) const {
    TORCH_CHECK(embeds_ || inputs.size() == 2,
                "a stage that separates documents also needs their starts");
    return embeds_ ? DocumentStartsOf(inputs[0], document_end_, place_) : inputs[1];
  }

  // Returns the logits of the rank's part of the vocabulary.
  torch::Tensor Logits(const torch::Tensor& whole) {
    const torch::Tensor hidden = ShareAmongRanks(whole, vocabulary_.place);
    return head_ ? head_->forward(hidden) : at::linear(hidden, embedding_->weight());
  }

  torch::Tensor CrossEntropy(const torch::Tensor& logits, const torch::Tensor& targets) {
    return vocabulary_.place.ranks * place_.ranks == 1
               ? StageModule::Loss({&logits, 1}, targets)
               : DividedCrossEntropy(logits, targets, vocabulary_, place_);
  }

  RotaryTable rotary_;
  bool embeds_, has_logits_;
  std::int64_t document_end_;
  Cut vocabulary_;
  ContextPlace place_;
  std::int64_t parts_;  // of the input's tokens that other tensor ranks have, too
  double predictor_weight_;
  std::shared_ptr<Embedding> embedding_;
  std::vector<std::shared_ptr<DecoderBlock>> blocks_;
  std::shared_ptr<RmsNorm> norm_;
  std::shared_ptr<Projection> head_;           // null if tied
  std::shared_ptr<TokenPredictor> predictor_;  // null if there is none
};

}  // namespace

ModelEntry DecoderEntry(ModelSpec spec) {
  return {std::move(spec),
          [](const ModelConfig& config, const LayerRange& range) {
            return std::make_shared<DecoderStage>(config, *DecoderOptionsOf(config), range);
          },
          InitializeTransformer};
}

}  // namespace penstock
