#include "analytic/huggingface_shape.h"

#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/files.h"
#include "base/text/nearest.h"
#include "base/text/quote.h"
#include "huggingface/config_file.h"

namespace penstock {
namespace {

using Json = nlohmann::json;

// Values of a ConfigFile, whose types have been checked.
std::int64_t SizeOf(const Json& values, const char* key) {
  return values.at(key).get<std::int64_t>();
}
std::int64_t SizeOr(const Json& values, const char* key, std::int64_t otherwise) {
  return values.at(key).is_null() ? otherwise : SizeOf(values, key);
}

Status ReadDecoder(const Json& values, ModelShape& shape) {
  shape.vocabulary = SizeOf(values, "vocab_size");
  shape.dim = SizeOf(values, "hidden_size");
  shape.layers = SizeOf(values, "num_hidden_layers");
  shape.heads = SizeOf(values, "num_attention_heads");
  shape.hidden = SizeOf(values, "intermediate_size");
  shape.kv_heads = SizeOr(values, "num_key_value_heads", shape.heads);
  shape.tied = values.at("tie_word_embeddings").get<bool>();
  return {};
}

Status ReadLlamaShape(const Json& values, ModelShape& shape) {
  PENSTOCK_TRY_STATUS(ReadDecoder(values, shape));
  shape.head_dim = SizeOr(values, "head_dim", shape.dim / shape.heads);
  return {};
}

Status ReadQwen3(const Json& values, ModelShape& shape) {
  shape.qk_norm = true;
  return ReadLlamaShape(values, shape);
}

Status ReadMixtralShape(const Json& values, ModelShape& shape) {
  PENSTOCK_TRY_STATUS(ReadLlamaShape(values, shape));
  ExpertShape& experts = shape.experts.emplace();
  experts.experts = SizeOf(values, "num_local_experts");
  experts.top_k = SizeOf(values, "num_experts_per_tok");
  experts.hidden = shape.hidden;
  return {};
}

Status ReadQwen3MoeShape(const Json& values, ModelShape& shape) {
  PENSTOCK_TRY_STATUS(ReadQwen3(values, shape));
  ExpertShape& experts = shape.experts.emplace();
  experts.experts = SizeOf(values, "num_experts");
  experts.top_k = SizeOf(values, "num_experts_per_tok");
  experts.hidden = SizeOf(values, "moe_intermediate_size");
  experts.normalizes = values.at("norm_topk_prob").get<bool>();
  PENSTOCK_TRY(experts.dense_layers, LeadingDenseLayers(values));
  return {};
}

Status ReadDeepseekShape(const Json& values, ModelShape& shape) {
  PENSTOCK_TRY_STATUS(ReadDecoder(values, shape));
  shape.head_dim = 0;
  LatentShape& latent = shape.latent.emplace();
  latent.query_rank = SizeOr(values, "q_lora_rank", 0);
  latent.kv_rank = SizeOf(values, "kv_lora_rank");
  latent.plain_dim = SizeOf(values, "qk_nope_head_dim");
  latent.rotary_dim = SizeOf(values, "qk_rope_head_dim");
  latent.value_dim = SizeOf(values, "v_head_dim");
  if (values.at("num_experts_per_tok").is_null()) {
    return InvalidArgument("num_experts_per_tok: the key is missing");
  }
  ExpertShape& experts = shape.experts.emplace();
  experts.experts = SizeOf(values, "n_routed_experts");
  experts.top_k = SizeOf(values, "num_experts_per_tok");
  experts.hidden = SizeOf(values, "moe_intermediate_size");
  experts.shared = SizeOf(values, "n_shared_experts");
  experts.dense_layers = SizeOf(values, "first_k_dense_replace");
  experts.normalizes = values.at("norm_topk_prob").get<bool>();
  experts.scales = values.at("routed_scaling_factor") != 1;
  return {};
}

Status ReadDeepseekV3Shape(const Json& values, ModelShape& shape) {
  PENSTOCK_TRY_STATUS(ReadDeepseekShape(values, shape));
  shape.experts->balance = ExpertShape::Balance::kBias;
  return {};
}

Status ReadGpt2Shape(const Json& values, ModelShape& shape) {
  shape.architecture = Architecture::kGpt2;
  shape.vocabulary = SizeOf(values, "vocab_size");
  shape.dim = SizeOf(values, "n_embd");
  shape.layers = SizeOf(values, "n_layer");
  shape.heads = shape.kv_heads = SizeOf(values, "n_head");
  shape.head_dim = shape.dim / shape.heads;
  shape.hidden = SizeOr(values, "n_inner", 4 * shape.dim);
  shape.positions = SizeOf(values, "n_positions");
  shape.tied = values.at("tie_word_embeddings").get<bool>();
  return {};
}

struct ModelType {
  std::string_view name;
  Status (*read)(const Json& values, ModelShape& shape);
};
constexpr std::array kModelTypes = {
    ModelType{"llama", ReadLlamaShape},
    ModelType{"qwen3", ReadQwen3},
    ModelType{"mixtral", ReadMixtralShape},
    ModelType{"qwen3_moe", ReadQwen3MoeShape},
    ModelType{"deepseek_v2", ReadDeepseekShape},
    ModelType{"deepseek_v3", ReadDeepseekV3Shape},
    ModelType{"gpt2", ReadGpt2Shape},
};

Result<const ModelType*> FindModelType(std::string_view name) {
  std::vector<std::string_view> names;
  for (const ModelType& type : kModelTypes) {
    if (type.name == name) return &type;
    names.push_back(type.name);
  }
  return InvalidArgument("model_type: {} is not supported{}", Quote(name), Suggestion(name, names));
}

Result<ModelShape> ShapeOf(const ConfigFile& file) {
  PENSTOCK_TRY(const ModelType* type, FindModelType(file.model_type));
  ModelShape shape;
  shape.name = type->name;
  PENSTOCK_TRY_STATUS(type->read(file.values, shape));
  PENSTOCK_TRY_STATUS(CheckShape(shape));
  return shape;
}

}  // namespace

Result<ModelShape> ParseHuggingFaceShape(std::string_view text) {
  PENSTOCK_TRY(const ConfigFile file, ParseConfigFile(text));
  return ShapeOf(file);
}

Result<ModelShape> ReadHuggingFaceShape(const std::string& path) {
  std::error_code error;
  const bool is_folder = std::filesystem::is_directory(path, error);
  const std::string file =
      is_folder ? (std::filesystem::path(path) / "config.json").string() : path;
  PENSTOCK_TRY(const std::string text, ReadFile(file, kConfigFile));
  const auto config = ParseConfigFile(text);
  auto shape = config ? ShapeOf(*config) : Result<ModelShape>(tl::unexpected(config.error()));
  if (!shape) return MakeError(shape.error().code, "{}: {}", file, shape.error().line());
  ReportUnknownKeys(*config, file);
  return shape;
}

}  // namespace penstock
