#include "model_spec/huggingface_shapes.h"

#include <algorithm>
#include <string>

namespace penstock {
namespace {

using Json = nlohmann::json;

// Reads keys. The first fault is the result of Finish().
class SizeReader {
 public:
  explicit SizeReader(const Json& values) : values_(values) {}

  bool Has(const char* key) const { return values_.contains(key) && !values_[key].is_null(); }
  // Returns a whole number from `least` on; `otherwise` if the key is missing, which it may be
  // unless that is below `least`.
  std::int64_t Size(const char* key, std::int64_t otherwise = 0, std::int64_t least = 1) {
    if (!Has(key)) {
      if (otherwise < least) Fault(key, "the key is missing");
      return otherwise;
    }
    const Json& value = values_[key];
    if (value.is_number_integer() && value.get<double>() >= static_cast<double>(least) &&
        value.get<double>() <= static_cast<double>(kMostShapeSize)) {
      return value.get<std::int64_t>();
    }
    Fault(key, fmt::format("a whole number from {} to {} is needed", least, kMostShapeSize));
    return least;
  }
  bool Flag(const char* key, bool otherwise) {
    if (!Has(key)) return otherwise;
    if (!values_[key].is_boolean()) Fault(key, "true or false is needed");
    return values_[key].is_boolean() && values_[key].get<bool>();
  }
  std::string Text(const char* key) {
    if (Has(key) && values_[key].is_string()) return values_[key].get<std::string>();
    Fault(key, "a text is needed");
    return {};
  }
  // Returns n if of the layers' types every nth is full attention and all others are `other`.
  std::int64_t FullEvery(std::string_view other, std::int64_t otherwise) {
    if (!Has("layer_types")) return otherwise;
    const Json& types = values_["layer_types"];
    const auto first = std::ranges::find(types, Json("full_attention"));
    const std::int64_t every = first - types.begin() + 1;
    std::int64_t layer = 0;
    for (const Json& type : types) {
      const bool is_full = ++layer % every == 0;
      if (type == (is_full ? "full_attention" : other)) continue;
      Fault("layer_types",
            fmt::format("only {} with full attention in every nth layer is supported", other));
      break;
    }
    return every;
  }
  void Fault(const char* key, std::string_view what) {
    if (status_) status_ = InvalidParameter(key, ": {}", what);
  }
  Status Finish() const { return status_; }

 private:
  const Json& values_;
  Status status_;
};

// What all decoders have. The reader of a model sets the rest.
ModelShape DecoderSizes(SizeReader& reader) {
  ModelShape shape;
  shape.vocabulary = reader.Size("vocab_size");
  shape.dim = reader.Size("hidden_size");
  shape.layers = reader.Size("num_hidden_layers");
  shape.heads = reader.Size("num_attention_heads");
  shape.kv_heads = reader.Size("num_key_value_heads", shape.heads);
  shape.head_dim = reader.Size("head_dim", std::max<std::int64_t>(shape.dim / shape.heads, 1));
  shape.hidden = reader.Size("intermediate_size");
  shape.tied = reader.Flag("tie_word_embeddings", false);
  return shape;
}

ModelShape Qwen2Sizes(SizeReader& reader) {
  ModelShape shape = DecoderSizes(reader);
  shape.qkv_biases = true;
  if (reader.Flag("use_sliding_window", false)) {
    reader.Fault("use_sliding_window", "only false is supported");
  }
  return shape;
}

// Experts of Qwen2-MoE and Qwen3-Next, whose shared expert has a gate.
ExpertShape QwenExperts(SizeReader& reader) {
  ExpertShape experts{.experts = reader.Size("num_experts"),
                      .top_k = reader.Size("num_experts_per_tok"),
                      .hidden = reader.Size("moe_intermediate_size"),
                      .shared = 1};
  experts.shared_hidden = reader.Size("shared_expert_intermediate_size");
  experts.shared_gate = true;
  experts.normalizes = reader.Flag("norm_topk_prob", true);
  experts.every = reader.Size("decoder_sparse_step", 1);
  return experts;
}

ModelShape Qwen2MoeSizes(SizeReader& reader) {
  ModelShape shape = Qwen2Sizes(reader);
  shape.experts = QwenExperts(reader);
  return shape;
}

ModelShape Qwen3NextSizes(SizeReader& reader) {
  ModelShape shape = DecoderSizes(reader);
  shape.head_dim = reader.Size("head_dim", 256);
  shape.qk_norm = shape.query_gate = true;
  shape.experts = QwenExperts(reader);
  shape.delta = {.key_heads = reader.Size("linear_num_key_heads"),
                 .value_heads = reader.Size("linear_num_value_heads"),
                 .head_dim = reader.Size("linear_value_head_dim"),
                 .convolution = reader.Size("linear_conv_kernel_dim", 4)};
  shape.full_every =
      reader.FullEvery("linear_attention", reader.Size("full_attention_interval", 4));
  return shape;
}

ModelShape MistralSizes(SizeReader& reader) {
  ModelShape shape = DecoderSizes(reader);
  if (reader.Has("sliding_window")) shape.window = reader.Size("sliding_window");
  return shape;
}

// Gemma3TextConfig, whose defaults published files rely on.
ModelShape Gemma3Sizes(SizeReader& reader) {
  ModelShape shape;
  shape.vocabulary = reader.Size("vocab_size", 262208);
  shape.dim = reader.Size("hidden_size", 2304);
  shape.layers = reader.Size("num_hidden_layers", 26);
  shape.heads = reader.Size("num_attention_heads", 8);
  shape.kv_heads = reader.Size("num_key_value_heads", 4);
  shape.head_dim = reader.Size("head_dim", 256);
  shape.hidden = reader.Size("intermediate_size", 9216);
  shape.tied = reader.Flag("tie_word_embeddings", true);
  shape.qk_norm = shape.norms_outputs = true;
  shape.window = reader.Size("sliding_window", 4096);
  shape.full_every =
      reader.FullEvery("sliding_attention", reader.Size("sliding_window_pattern", 6));
  return shape;
}

ModelShape GptOssSizes(SizeReader& reader) {
  ModelShape shape = DecoderSizes(reader);
  shape.qkv_biases = shape.output_bias = shape.sinks = true;
  shape.window = reader.Size("sliding_window", 128);
  shape.full_every = reader.FullEvery("sliding_attention", 2);
  shape.experts = ExpertShape{.experts = reader.Size("num_local_experts"),
                              .top_k = reader.Size("num_experts_per_tok", 4),
                              .hidden = shape.hidden};
  shape.experts->biases = true;
  return shape;
}

// Nemotron-H and Nemotron 3. Layers are the letters of hybrid_override_pattern.
ModelShape NemotronSizes(SizeReader& reader) {
  ModelShape shape = DecoderSizes(reader);
  shape.head_dim = reader.Size("attention_head_dim", shape.head_dim);
  shape.pattern = reader.Text("hybrid_override_pattern");
  shape.layers = std::max<std::int64_t>(std::ssize(shape.pattern), 1);
  shape.gated = false;
  shape.has_no_positions = true;
  shape.mamba = {.heads = reader.Size("mamba_num_heads"),
                 .head_dim = reader.Size("mamba_head_dim"),
                 .state = reader.Size("ssm_state_size"),
                 .groups = reader.Size("n_groups"),
                 .convolution = reader.Size("conv_kernel", 4)};
  if (shape.pattern.find('E') == std::string::npos) return shape;
  shape.experts = ExpertShape{.experts = reader.Size("n_routed_experts"),
                              .top_k = reader.Size("num_experts_per_tok"),
                              .hidden = reader.Size("moe_intermediate_size"),
                              .shared = reader.Size("n_shared_experts", 1)};
  shape.experts->shared_hidden =
      shape.experts->shared * reader.Size("moe_shared_expert_intermediate_size");
  shape.experts->latent = reader.Has("moe_latent_size") ? reader.Size("moe_latent_size") : 0;
  shape.experts->balance = ExpertShape::Balance::kBias;
  shape.experts->scales = true;
  return shape;
}

struct SizesFormat {
  std::string_view model_type;
  ModelShape (*read)(SizeReader& reader);
};
constexpr SizesFormat kFormats[] = {
    {"gpt_oss", &GptOssSizes},       {"qwen2", &Qwen2Sizes},         {"qwen2_moe", &Qwen2MoeSizes},
    {"qwen3_next", &Qwen3NextSizes}, {"gemma3_text", &Gemma3Sizes},  {"gemma3", &Gemma3Sizes},
    {"mistral", &MistralSizes},      {"nemotron_h", &NemotronSizes},
};

}  // namespace

std::vector<std::string_view> HuggingFaceShapeTypes() {
  std::vector<std::string_view> types;
  for (const SizesFormat& format : kFormats) types.push_back(format.model_type);
  return types;
}

Result<ModelShape> ReadHuggingFaceSizes(std::string_view model_type, const Json& values) {
  const auto format = std::ranges::find(kFormats, model_type, &SizesFormat::model_type);
  // The text model of one that also reads images.
  const bool is_nested = values.contains("text_config") && values["text_config"].is_object();
  SizeReader reader(is_nested ? values["text_config"] : values);
  ModelShape shape = format->read(reader);
  PENSTOCK_TRY_STATUS(reader.Finish());
  shape.name = model_type;
  PENSTOCK_TRY_STATUS(CheckShape(shape));
  return shape;
}

}  // namespace penstock
