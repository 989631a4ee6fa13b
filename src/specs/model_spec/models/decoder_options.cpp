#include "model_spec/models/decoder_options.h"

#include <utility>

namespace penstock {
namespace {

bool HoldsEmbedding(const LayerRange& range) { return range.has_embedding() || range.has_logits(); }

Result<VocabularyTables> TablesOf(const DecoderOptions& options) {
  if (options.predictor > 0) {
    return InvalidParameter("parallel.shard_vocabulary",
                            ": the token predictor reads the whole embedding and head; set "
                            "model.predictor=0");
  }
  return VocabularyTables{"embedding.weight", options.tied ? "embedding.weight" : "head.weight"};
}

ExpertShape ShapeOfExperts(const DecoderOptions& options, std::int64_t dim) {
  using enum ExpertShape::Balance;
  const ExpertOptions& experts = *options.Experts();
  return {
      .experts = experts.experts,
      .top_k = experts.top_k,
      .hidden = options.ExpertHiddenOf(dim),
      .shared = experts.shared,
      .dense_layers = experts.dense_layers,
      .normalizes = experts.normalize,
      .scales = experts.scale != 1,
      .balance = experts.balance == "bias" ? kBias : (experts.balance == "loss" ? kLoss : kNone)};
}

ModelShape ShapeOfDecoder(const ModelConfig& config) {
  const auto options = DecoderOptionsOf(config);
  const AttentionSizes attention = options->AttentionOf(config.dim);
  ModelShape shape{.name = config.name,
                   .vocabulary = config.vocabulary,
                   .dim = config.dim,
                   .layers = config.layers,
                   .heads = attention.heads,
                   .kv_heads = attention.kv_heads,
                   .head_dim = attention.head_dim,
                   .hidden = options->HiddenOf(config.dim),
                   .qk_norm = options->qk_norm,
                   .tied = options->tied,
                   .latent = options->Latent(config.dim)};
  if (shape.latent) shape.head_dim = 0;
  if (options->Experts() != nullptr) shape.experts = ShapeOfExperts(*options, config.dim);
  return shape;
}

}  // namespace

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
    return InvalidParameter("model.dim", "{} over {} heads: each head needs an even, whole share",
                            config.dim, heads);
  }
  if (sizes.head_dim % 2 != 0) {
    return InvalidParameter("model.head_dim", "{}: rotary positions need an even size of each head",
                            sizes.head_dim);
  }
  if (heads % sizes.kv_heads != 0) {
    return InvalidParameter("model.kv_heads", "{} does not divide `model.heads` {}", kv_heads,
                            heads);
  }
  return rope.Check();
}

std::vector<Field> DecoderOptions::Fields() {
  return {
      {"heads", &heads, Changes::kModel, "Attention heads", kModelSize,
       "n_heads n_head num_heads num_attention_heads"},
      {"kv_heads", &kv_heads, Changes::kModel,
       "Key and value heads, shared evenly by the query heads (auto: one per query head)",
       kAutomaticModelSize, "n_kv_heads num_key_value_heads num_query_groups"},
      {"head_dim", &head_dim, Changes::kModel, "Size of each head (auto: dim / heads)",
       kAutomaticModelSize, "kv_channels"},
      {"hidden", &hidden, Changes::kModel,
       "Width of the feed-forward layer (auto: 8/3 dim, rounded up to a multiple of 32)",
       kAutomaticModelSize, "hidden_dim intermediate_size ffn_hidden_size"},
      {"rope_theta", &rope_theta, Changes::kModel, "Base of the rotary position embedding",
       kFromOne, "rotary_base"},
      {"rope_scaling", &rope.type, Changes::kModel,
       "Scaling of the rotary frequencies for long sequences", OneOf("none linear llama3 yarn"),
       "rope_type"},
      {"rope_factor", &rope.factor, Changes::kModel, "Divisor of scaled frequencies", kFromOne},
      {"rope_low_frequency_factor", &rope.low_frequency_factor, Changes::kModel,
       "With llama3: frequencies of fewer periods than this are scaled", kFromZero,
       "low_freq_factor"},
      {"rope_high_frequency_factor", &rope.high_frequency_factor, Changes::kModel,
       "With llama3: frequencies of more periods than this are not", kFromZero, "high_freq_factor"},
      {"rope_original_sequence", &rope.original_sequence, Changes::kModel,
       "With llama3 or yarn: the tokens over which periods count", kModelSize,
       "original_max_position_embeddings"},
      {"rope_fast_turns", &rope.fast_turns, Changes::kModel,
       "With yarn: frequencies of more turns than this are not scaled", kFromZero, "beta_fast"},
      {"rope_slow_turns", &rope.slow_turns, Changes::kModel,
       "With yarn: frequencies of fewer turns than this are scaled", kFromZero, "beta_slow"},
      {"rope_attention_factor", &rope.attention_factor, Changes::kModel,
       "With yarn: scale of the rotation (auto: 0.1 log(rope_factor) + 1)", kAutomatic,
       "attention_factor"},
      {"norm_epsilon", &norm_epsilon, Changes::kModel, "Added to the mean square in RMSNorm",
       kFromZero, "norm_eps rms_norm_eps"},
      {"dropout",
       &dropout,
       Changes::kPrograms,
       "Dropout probability of each residual branch",
       {.most = 0.99},
       "resid_pdrop hidden_dropout"},
      {"tied", &tied, Changes::kModel, "Use the token embedding as the head, too", kFromZero,
       "tie_word_embeddings enable_weight_tying tie_embeddings weight_tying"},
  };
}

std::unique_ptr<DecoderOptions> DecoderOptionsOf(const ModelConfig& config) {
  std::unique_ptr<ModelOptions> options = MakeModelOptions(config.name);
  const Status read = ReadOptions(config, *options);
  PENSTOCK_CHECK(read, "{}", read.error().line());
  return std::unique_ptr<DecoderOptions>(static_cast<DecoderOptions*>(options.release()));
}

ModelSpec MakeDecoderSpec(std::function<std::unique_ptr<ModelOptions>()> options) {
  ModelSpec model;
  model.options = std::move(options);
  model.check = [](const ModelConfig& config) { return DecoderOptionsOf(config)->Check(config); };
  model.separates_documents = true;
  model.divides_samples = true;
  model.shared = [](const ModelConfig& config) -> std::vector<SharedDeclaration> {
    const auto options = DecoderOptionsOf(config);
    if (!options->shares_embedding()) return {};
    return {{"embedding.weight", HoldsEmbedding,
             options->tied ? "model.tied=false" : "model.predictor=0"}};
  };
  model.first_alike_layer = [](const ModelConfig& config) {
    const auto options = DecoderOptionsOf(config);
    return options->Experts() == nullptr ? 0 : options->Experts()->dense_layers;
  };
  model.divided = [](const ModelConfig& config) -> std::vector<DividedSize> {
    const auto options = DecoderOptionsOf(config);
    std::vector<DividedSize> sizes = {{"model.heads", options->heads}};
    if (!options->Latent(config.dim)) {
      const std::int64_t kv_heads = options->AttentionOf(config.dim).kv_heads;
      sizes.push_back({"model.kv_heads", kv_heads, /*may_repeat=*/true});
    }
    const ExpertOptions* const experts = options->Experts();
    if (experts == nullptr || experts->dense_layers > 0) {
      sizes.push_back({"model.hidden", options->HiddenOf(config.dim)});
    }
    if (experts != nullptr) {
      sizes.push_back({.key = "model.expert_hidden",
                       .size = options->ExpertHiddenOf(config.dim),
                       .of_experts = true});
      const std::int64_t shared = experts->shared * options->ExpertHiddenOf(config.dim);
      if (shared > 0) sizes.push_back({"model.shared_experts times model.expert_hidden", shared});
    }
    return sizes;
  };
  model.vocabulary = [](const ModelConfig& config) { return TablesOf(*DecoderOptionsOf(config)); };
  model.shape = ShapeOfDecoder;
  model.huggingface.names = DecoderNames();
  model.huggingface.write = [](const ModelConfig& config, nlohmann::ordered_json& root) {
    WriteDecoderConfig(config, *DecoderOptionsOf(config), root);
  };
  return model;
}

}  // namespace penstock
