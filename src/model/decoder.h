// A decoder of pre-norm blocks: grouped-query attention with rotary positions, then SwiGLU, each
// after RMSNorm and with a residual. Llama and Qwen3 are decoders with different options.
#pragma once

#include <memory>
#include <vector>

#include "model/layers.h"
#include "model/model_entry.h"
#include "model/rope.h"

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
  bool qk_norm = false;  // RMSNorm of each head of queries and keys; of the model, not an option

  std::vector<Field> Fields() override;

  // 8/3 dim, so that three matrices have as many parameters as two of 4 dim; rounded up to a
  // multiple of 32, for which matrix kernels are fast.
  std::int64_t HiddenOf(std::int64_t dim) const {
    return hidden > 0 ? hidden : (8 * dim / 3 + 31) / 32 * 32;
  }
  AttentionSizes AttentionOf(std::int64_t dim) const {
    return {dim, heads, kv_heads > 0 ? kv_heads : heads, head_dim > 0 ? head_dim : dim / heads,
            qk_norm ? norm_epsilon : 0};
  }
};

// Our names of parameters and those of Hugging Face.
std::vector<std::pair<std::string_view, std::string_view>> DecoderNames();
// Read and write config.json. A reader of a model adds head_dim, whose default differs.
void ReadDecoderConfig(HuggingFaceReader& reader, ModelConfig& config);
void WriteDecoderConfig(const ModelConfig& config, const DecoderOptions& options,
                        nlohmann::ordered_json& root);

// Returns an entry with the options of `Options`, which derives from DecoderOptions and sets
// defaults. The caller sets the name and the summary.
ModelEntry MakeDecoderEntry(
    std::function<std::unique_ptr<ModelOptions>()> options,
    const std::function<std::unique_ptr<DecoderOptions>(const ModelConfig& config)>& read);

template <class Options>
ModelEntry DecoderEntry() {
  return MakeDecoderEntry(MakeOptions<Options>, [](const ModelConfig& config) {
    return std::make_unique<Options>(OptionsOf<Options>(config));
  });
}

}  // namespace penstock
