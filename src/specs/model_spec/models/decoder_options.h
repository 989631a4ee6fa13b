// Options of decoders of pre-norm blocks: attention with rotary positions, then a feed-forward
// layer, each after RMSNorm and with a residual. Models are decoders with different options, which
// also choose the layers: grouped-query attention and SwiGLU unless the options say otherwise.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "model_spec/attention_sizes.h"
#include "model_spec/model_spec.h"
#include "model_spec/models/expert_options.h"
#include "model_spec/rope_scaling.h"

namespace penstock {

struct DecoderOptions : ModelOptions {
  std::int64_t heads = 4;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t hidden = 0;
  double rope_theta = 10000;
  RopeScaling rope;
  double norm_epsilon = 1e-5;
  double dropout = 0;
  bool tied = false;
  // Options that only some models have:
  bool qk_norm = false;           // RMSNorm of each head of queries and keys
  std::int64_t predictor = 0;     // blocks that predict another token (token_predictor.h): 0 or 1
  double predictor_weight = 0.3;  // of their loss

  // Whether the last stage needs the embedding.
  bool shares_embedding() const { return tied || predictor > 0; }

  std::vector<Field> Fields() override;
  void Resolve(const ModelConfig& config) override;
  // Errors: kInvalidArgument, naming the key, for sizes that cannot be combined.
  virtual Status Check(const ModelConfig& config) const;
  // The sizes of multi-head latent attention. Without them, attention is as in AttentionOf.
  virtual std::optional<LatentShape> Latent(std::int64_t) const { return {}; }
  // The experts of all but the first layers; null if the model has none.
  virtual const ExpertOptions* Experts() const { return nullptr; }

  // 8/3 dim, so that three matrices have as many parameters as two of 4 dim; rounded up to a
  // multiple of 32, for which matrix kernels are fast.
  std::int64_t HiddenOf(std::int64_t dim) const {
    return hidden > 0 ? hidden : (8 * dim / 3 + 31) / 32 * 32;
  }
  // Requires: the model has experts.
  std::int64_t ExpertHiddenOf(std::int64_t dim) const {
    return Experts()->hidden > 0 ? Experts()->hidden : HiddenOf(dim);
  }
  AttentionSizes AttentionOf(std::int64_t dim) const {
    return {dim, heads, kv_heads > 0 ? kv_heads : heads, head_dim > 0 ? head_dim : dim / heads,
            qk_norm ? norm_epsilon : 0};
  }
};

// Our names and Hugging Face's names of parameters.
std::vector<HuggingFaceTensor> DecoderNames();
// Read and write config.json.
void ReadDecoderConfig(HuggingFaceReader& reader, ModelConfig& config);
// Reads the keys that all decoders have, whatever their attention.
void ReadDecoderSizes(HuggingFaceReader& reader, ModelConfig& config);
void WriteDecoderConfig(const ModelConfig& config, const DecoderOptions& options,
                        nlohmann::ordered_json& root);

// Reads rope_parameters. `scales_scores`: whether mscale and mscale_all_dim are options of the
// model, as in DeepSeek's; other models have only their effect on cosines and sines.
void ReadRope(HuggingFaceReader& reader, bool scales_scores, ModelConfig& config);
nlohmann::ordered_json RopeJson(const RopeScaling& rope);

// Returns the options of a configured decoder. Requires: CheckModel succeeds.
std::unique_ptr<DecoderOptions> DecoderOptionsOf(const ModelConfig& config);

// Returns what all decoders have in common; `Options` derives from DecoderOptions and sets
// defaults. The caller sets name, summary, and how config.json is read.
ModelSpec MakeDecoderSpec(std::function<std::unique_ptr<ModelOptions>()> options);
template <class Options>
ModelSpec DecoderSpec() {
  return MakeDecoderSpec(MakeOptions<Options>);
}

}  // namespace penstock
