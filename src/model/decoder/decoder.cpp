#include "model/decoder/decoder.h"

#include <ATen/ops/linear.h>

#include <utility>

#include "graph/ops/documents.h"
#include "graph/ops/random_ops.h"
#include "model/decoder/token_predictor.h"
#include "model/init.h"

namespace penstock {
namespace {

class DecoderStage : public StageModule {
 public:
  DecoderStage(const ModelConfig& config, const DecoderOptions& options, const LayerRange& range)
      : rotary_(options.MakeRotary(config)),
        embeds_(range.embedding && !range.sharded_vocabulary),
        has_logits_(range.head && !range.sharded_vocabulary),
        document_end_(config.document_end),
        predictor_weight_(options.predictor_weight) {
    register_buffer("rotary_cos", rotary_.cos);
    register_buffer("rotary_sin", rotary_.sin);
    // A last stage that needs the embedding has a copy of it under the same name.
    if (embeds_ || (has_logits_ && options.shares_embedding())) {
      embedding_ =
          register_module("embedding", std::make_shared<Embedding>(config.vocabulary, config.dim));
    }
    blocks_ = RegisterEachLayer(*this, range, [&](std::int64_t layer) {
      return std::make_shared<DecoderBlock>(layer, config.dim, options, range);
    });
    if (!range.head) return;
    norm_ = register_module("norm", std::make_shared<RmsNorm>(config.dim, options.norm_epsilon));
    if (has_logits_ && !options.tied) {
      head_ = register_module("head", std::make_shared<Projection>(config.dim, config.vocabulary));
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
    const torch::Tensor hidden = Hidden(std::move(input), rotary_, context);
    return has_logits_ ? Logits(hidden) : hidden;
  }

  // A last stage with a predictor also returns what its loss needs: the hidden states, and the
  // starts of documents.
  std::vector<torch::Tensor> ForwardAll(std::span<const torch::Tensor> inputs) override {
    std::vector<torch::Tensor> outputs;
    if (document_end_ < 0) {
      SequenceContext whole;
      outputs = {Hidden(inputs[0], rotary_, whole)};
    } else {
      const torch::Tensor starts = StartsOf(inputs);
      SequenceContext documents = SequenceContext::OfDocuments(starts);
      const RotaryTable rotary = rotary_.At(documents.PositionsInDocuments());
      outputs = {Hidden(inputs[0], rotary, documents), starts};
    }
    if (!has_logits_) return outputs;
    const torch::Tensor logits = Logits(outputs.front());
    if (!predictor_ || !is_training()) return {logits};
    outputs.insert(outputs.begin(), logits);
    return outputs;
  }

  torch::Tensor Loss(std::span<const torch::Tensor> outputs,
                     const torch::Tensor& targets) override {
    torch::Tensor loss = StageModule::Loss(outputs, targets);
    if (!predictor_ || !is_training()) return loss;
    // The target of a token is the next one. The last token has no target two tokens ahead.
    const std::int64_t length = targets.size(1) - 1;
    const torch::Tensor next = embedding_->forward(targets.narrow(1, 0, length));
    const torch::Tensor hidden = outputs[1].narrow(1, 0, length);
    const torch::Tensor starts =
        document_end_ < 0 ? torch::Tensor() : outputs[2].narrow(1, 0, length);
    const torch::Tensor states = predictor_->forward(hidden, next, rotary_, starts);
    const torch::Tensor logits = Logits(states);
    return loss + predictor_weight_ * StageModule::Loss({&logits, 1}, targets.narrow(1, 1, length));
  }

  void SetLossGradient(double gradient) override {
    for (const auto& block : blocks_) block->SetLossGradient(gradient);
    if (predictor_) predictor_->SetLossGradient(gradient * predictor_weight_);
  }

 private:
  // Returns the output of the last block, normalized in a last stage.
  torch::Tensor Hidden(torch::Tensor input, const RotaryTable& rotary, SequenceContext& context) {
    torch::Tensor hidden = embeds_ ? embedding_->forward(input) : std::move(input);
    for (const auto& block : blocks_) {
      BeginLayer();
      hidden = block->forward(hidden, rotary, context);
    }
    return norm_ ? norm_->forward(hidden) : hidden;
  }

  // Returns the start of each token's document: computed by the first stage, then passed on.
  torch::Tensor StartsOf(std::span<const torch::Tensor> inputs) const {
    TORCH_CHECK(embeds_ || inputs.size() == 2,
                "a stage that separates documents also needs their starts");
    return embeds_ ? DocumentStarts(inputs[0], document_end_) : inputs[1];
  }

  torch::Tensor Logits(const torch::Tensor& hidden) {
    return head_ ? head_->forward(hidden) : at::linear(hidden, embedding_->weight());
  }

  RotaryTable rotary_;
  bool embeds_, has_logits_;
  std::int64_t document_end_;
  double predictor_weight_;
  std::shared_ptr<Embedding> embedding_;
  std::vector<std::shared_ptr<DecoderBlock>> blocks_;
  std::shared_ptr<RmsNorm> norm_;
  std::shared_ptr<Projection> head_;           // null if tied
  std::shared_ptr<TokenPredictor> predictor_;  // null if there is none
};

bool HoldsEmbedding(const LayerRange& range) {
  return (range.embedding || range.head) && !range.sharded_vocabulary;
}

Result<VocabularyTables> TablesOf(const DecoderOptions& options) {
  if (options.predictor > 0) {
    return InvalidArgument(
        "parallel.shard_vocabulary: the token predictor reads the whole embedding and head; set "
        "model.predictor=0");
  }
  return VocabularyTables{"embedding.weight", options.tied ? "embedding.weight" : "head.weight"};
}

}  // namespace

std::unique_ptr<AttentionLayer> DecoderOptions::MakeAttention(torch::nn::Module& block,
                                                              std::int64_t dim) const {
  return std::make_unique<Attention>(block, AttentionOf(dim));
}

std::unique_ptr<FeedForward> DecoderOptions::MakeFeedForward(torch::nn::Module& block, std::int64_t,
                                                             std::int64_t dim,
                                                             const LayerRange&) const {
  return std::make_unique<SwiGlu>(block, dim, HiddenOf(dim));
}

RotaryTable DecoderOptions::MakeRotary(const ModelConfig& config) const {
  return RotaryTable::Make(config.sequence, AttentionOf(config.dim).head_dim, rope_theta, rope);
}

void DecoderOptions::Resolve(const ModelConfig& config) {
  const AttentionSizes sizes = AttentionOf(config.dim);
  kv_heads = sizes.kv_heads;
  head_dim = sizes.head_dim;
  hidden = HiddenOf(config.dim);
  rope = rope.Used();
  predictor = 0;  // only training runs it
}

Status DecoderOptions::Check(const ModelConfig& config) const {
  const AttentionSizes sizes = AttentionOf(config.dim);
  if (head_dim == 0 && config.dim % heads != 0) {
    return InvalidArgument("model.dim {} over {} heads: each head needs an even, whole share",
                           config.dim, heads);
  }
  if (sizes.head_dim % 2 != 0) {
    return InvalidArgument("model.head_dim {}: rotary positions need an even size of each head",
                           sizes.head_dim);
  }
  if (heads % sizes.kv_heads != 0) {
    return InvalidArgument("model.kv_heads {} does not divide model.heads {}", kv_heads, heads);
  }
  return rope.Check();
}

std::vector<Field> DecoderOptions::Fields() {
  return {
      {"heads",
       &heads,
       Changes::kModel,
       "Attention heads",
       {.least = 1, .most = kMostModelSize},
       "n_heads n_head num_heads num_attention_heads"},
      {"kv_heads",
       &kv_heads,
       Changes::kModel,
       "Key and value heads, shared evenly by the query heads (auto: one per query head)",
       {.most = kMostModelSize, .automatic = true},
       "n_kv_heads num_key_value_heads num_query_groups"},
      {"head_dim",
       &head_dim,
       Changes::kModel,
       "Size of each head (auto: dim / heads)",
       {.most = kMostModelSize, .automatic = true},
       "kv_channels"},
      {"hidden",
       &hidden,
       Changes::kModel,
       "Width of the feed-forward layer (auto: 8/3 dim, rounded up to a multiple of 32)",
       {.most = kMostModelSize, .automatic = true},
       "hidden_dim intermediate_size ffn_hidden_size"},
      {"rope_theta",
       &rope_theta,
       Changes::kModel,
       "Base of the rotary position embedding",
       {.least = 1},
       "rotary_base"},
      {"rope_scaling",
       &rope.type,
       Changes::kModel,
       "Scaling of the rotary frequencies for long sequences",
       {.choices = "none linear llama3 yarn"},
       "rope_type"},
      {"rope_factor", &rope.factor, Changes::kModel, "Divisor of scaled frequencies", {.least = 1}},
      {"rope_low_frequency_factor",
       &rope.low_frequency_factor,
       Changes::kModel,
       "With llama3: frequencies of fewer periods than this are scaled",
       {},
       "low_freq_factor"},
      {"rope_high_frequency_factor",
       &rope.high_frequency_factor,
       Changes::kModel,
       "With llama3: frequencies of more periods than this are not",
       {},
       "high_freq_factor"},
      {"rope_original_sequence",
       &rope.original_sequence,
       Changes::kModel,
       "With llama3 or yarn: the tokens over which periods count",
       {.least = 1, .most = kMostModelSize},
       "original_max_position_embeddings"},
      {"rope_fast_turns",
       &rope.fast_turns,
       Changes::kModel,
       "With yarn: frequencies of more turns than this are not scaled",
       {},
       "beta_fast"},
      {"rope_slow_turns",
       &rope.slow_turns,
       Changes::kModel,
       "With yarn: frequencies of fewer turns than this are scaled",
       {},
       "beta_slow"},
      {"rope_attention_factor",
       &rope.attention_factor,
       Changes::kModel,
       "With yarn: scale of the rotation (auto: 0.1 log(rope_factor) + 1)",
       {.automatic = true},
       "attention_factor"},
      {"norm_epsilon",
       &norm_epsilon,
       Changes::kModel,
       "Added to the mean square in RMSNorm",
       {},
       "norm_eps rms_norm_eps"},
      {"dropout",
       &dropout,
       Changes::kPrograms,
       "Dropout probability of each residual branch",
       {.most = 0.99},
       "resid_pdrop hidden_dropout"},
      {"tied",
       &tied,
       Changes::kModel,
       "Use the token embedding as the head, too",
       {},
       "tie_word_embeddings enable_weight_tying tie_embeddings weight_tying"},
  };
}

ModelEntry MakeDecoderEntry(
    std::function<std::unique_ptr<ModelOptions>()> options,
    const std::function<std::unique_ptr<DecoderOptions>(const ModelConfig& config)>& read) {
  ModelEntry model;
  model.options = std::move(options);
  model.check = [read](const ModelConfig& config) { return read(config)->Check(config); };
  model.build = [read](const ModelConfig& config, const LayerRange& range) {
    return std::make_shared<DecoderStage>(config, *read(config), range);
  };
  model.initialize = InitializeTransformer;
  model.separates_documents = true;
  model.shared = [read](const ModelConfig& config) -> std::vector<SharedDeclaration> {
    const auto options = read(config);
    if (!options->shares_embedding()) return {};
    return {{"embedding.weight", HoldsEmbedding,
             options->tied ? "model.tied=false" : "model.predictor=0"}};
  };
  model.first_alike_layer = [read](const ModelConfig& config) {
    return read(config)->FirstAlikeLayer();
  };
  model.vocabulary = [read](const ModelConfig& config) { return TablesOf(*read(config)); };
  model.huggingface.names = DecoderNames();
  model.huggingface.write = [read](const ModelConfig& config, nlohmann::ordered_json& root) {
    WriteDecoderConfig(config, *read(config), root);
  };
  return model;
}

}  // namespace penstock
