#include "analytic/huggingface_shape.h"

#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/files.h"
#include "base/text/nearest.h"
#include "base/text/quote.h"

namespace penstock {
namespace {

using Json = nlohmann::json;

constexpr FileLimit kShapeFile{1 << 20, "config.json"};

// Reads keys. The first fault is the result of Finish(), and names the key.
class KeyReader {
 public:
  explicit KeyReader(const Json& root) : root_(root) {}

  bool Has(const char* key) const { return root_.contains(key) && !root_[key].is_null(); }
  std::int64_t Size(const char* key) {
    if (!Has(key)) return Fault(key, "the key is missing");
    return SizeOr(key, 0);
  }
  std::int64_t SizeOr(const char* key, std::int64_t otherwise) {
    if (!Has(key)) return otherwise;
    const Json& value = root_[key];
    const bool fits = value.is_number_integer() && value.get<double>() >= 0 &&
                      value.get<double>() <= kMostShapeSize;
    if (!fits) return Fault(key, fmt::format("a whole number up to {} is needed", kMostShapeSize));
    return value.get<std::int64_t>();
  }
  bool FlagOr(const char* key, bool otherwise) {
    if (!Has(key)) return otherwise;
    if (!root_[key].is_boolean()) return Fault(key, "true or false is needed") != 0;
    return root_[key].get<bool>();
  }
  double NumberOr(const char* key, double otherwise) {
    if (!Has(key)) return otherwise;
    if (!root_[key].is_number()) return static_cast<double>(Fault(key, "a number is needed"));
    return root_[key].get<double>();
  }
  // Refuses a key with another value than the only one that the formulas cover.
  void Expect(const char* key, const Json& only) {
    if (!Has(key) || root_[key] == only) return;
    Fault(key, fmt::format("{} is not supported, only {}", Quote(root_[key].dump()), only.dump()));
  }
  std::int64_t Fault(const char* key, std::string_view what) {
    if (status_) status_ = InvalidArgument("{}: {}", key, what);
    return 0;
  }
  Status Finish() const { return status_; }

 private:
  const Json& root_;
  Status status_;
};

void ReadDecoder(KeyReader& reader, ModelShape& shape) {
  shape.vocabulary = reader.Size("vocab_size");
  shape.dim = reader.Size("hidden_size");
  shape.layers = reader.Size("num_hidden_layers");
  shape.heads = reader.Size("num_attention_heads");
  shape.hidden = reader.Size("intermediate_size");
  shape.kv_heads = reader.SizeOr("num_key_value_heads", shape.heads);
  const std::int64_t share = shape.heads > 0 ? shape.dim / shape.heads : 0;
  shape.head_dim = reader.SizeOr("head_dim", share);
  shape.tied = reader.FlagOr("tie_word_embeddings", false);
  reader.Expect("attention_bias", false);
  reader.Expect("mlp_bias", false);
}

void ReadQwen3(KeyReader& reader, ModelShape& shape) {
  ReadDecoder(reader, shape);
  if (!reader.Has("head_dim")) shape.head_dim = 128;
  shape.qk_norm = true;
}

void ReadMixtralShape(KeyReader& reader, ModelShape& shape) {
  ReadDecoder(reader, shape);
  ExpertShape& experts = shape.experts.emplace();
  experts.experts = reader.SizeOr("num_local_experts", 8);
  experts.top_k = reader.SizeOr("num_experts_per_tok", 2);
  experts.hidden = shape.hidden;
}

void ReadQwen3MoeShape(KeyReader& reader, ModelShape& shape) {
  ReadDecoder(reader, shape);
  shape.qk_norm = true;
  ExpertShape& experts = shape.experts.emplace();
  experts.experts =
      reader.SizeOr(reader.Has("num_local_experts") ? "num_local_experts" : "num_experts", 128);
  experts.top_k = reader.SizeOr("num_experts_per_tok", 8);
  experts.hidden = reader.SizeOr("moe_intermediate_size", 768);
  experts.normalizes = reader.FlagOr("norm_topk_prob", false);
  reader.Expect("decoder_sparse_step", 1);
  reader.Expect("mlp_only_layers", Json::array());
}

void ReadDeepseekShape(KeyReader& reader, ModelShape& shape) {
  ReadDecoder(reader, shape);
  shape.kv_heads = shape.heads;
  shape.head_dim = 0;
  LatentShape& latent = shape.latent.emplace();
  latent.query_rank = reader.SizeOr("q_lora_rank", 0);
  latent.kv_rank = reader.SizeOr("kv_lora_rank", 512);
  latent.plain_dim = reader.SizeOr("qk_nope_head_dim", 128);
  latent.rotary_dim = reader.SizeOr("qk_rope_head_dim", 64);
  latent.value_dim = reader.SizeOr("v_head_dim", 128);
  ExpertShape& experts = shape.experts.emplace();
  experts.experts = reader.Size("n_routed_experts");
  experts.top_k = reader.Size("num_experts_per_tok");
  experts.hidden = reader.Size("moe_intermediate_size");
  experts.shared = reader.SizeOr("n_shared_experts", 0);
  experts.dense_layers = reader.SizeOr("first_k_dense_replace", 0);
  experts.normalizes = reader.FlagOr("norm_topk_prob", false);
  experts.scales = reader.NumberOr("routed_scaling_factor", 1) != 1;
  reader.Expect("moe_layer_freq", 1);
}

void ReadDeepseekV3Shape(KeyReader& reader, ModelShape& shape) {
  ReadDeepseekShape(reader, shape);
  shape.experts->balance = ExpertShape::Balance::kBias;
}

void ReadGpt2Shape(KeyReader& reader, ModelShape& shape) {
  shape.architecture = Architecture::kGpt2;
  shape.vocabulary = reader.Size("vocab_size");
  shape.dim = reader.Size("n_embd");
  shape.layers = reader.Size("n_layer");
  shape.heads = shape.kv_heads = reader.Size("n_head");
  shape.head_dim = shape.heads > 0 ? shape.dim / shape.heads : 0;
  shape.hidden = reader.SizeOr("n_inner", 4 * shape.dim);
  shape.positions = reader.SizeOr("n_positions", 1024);
  shape.tied = reader.FlagOr("tie_word_embeddings", true);
}

struct ModelType {
  std::string_view name;
  void (*read)(KeyReader& reader, ModelShape& shape);
};
constexpr std::array kModelTypes = {
    ModelType{"llama", ReadDecoder},
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

}  // namespace

Result<ModelShape> ParseHuggingFaceShape(std::string_view text) {
  const Json root = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!root.is_object()) return InvalidArgument("it is not a JSON object");
  if (!root.contains("model_type") || !root["model_type"].is_string()) {
    return InvalidArgument("model_type is missing");
  }
  PENSTOCK_TRY(const ModelType* type, FindModelType(root["model_type"].get<std::string>()));
  ModelShape shape;
  shape.name = type->name;
  KeyReader reader(root);
  type->read(reader, shape);
  PENSTOCK_TRY_STATUS(reader.Finish());
  PENSTOCK_TRY_STATUS(CheckShape(shape));
  return shape;
}

Result<ModelShape> ReadHuggingFaceShape(const std::string& path) {
  std::error_code error;
  const bool is_folder = std::filesystem::is_directory(path, error);
  const std::string file =
      is_folder ? (std::filesystem::path(path) / "config.json").string() : path;
  PENSTOCK_TRY(const std::string text, ReadFile(file, kShapeFile));
  auto shape = ParseHuggingFaceShape(text);
  if (!shape) return MakeError(shape.error().code, "{}: {}", file, shape.error().message);
  return shape;
}

}  // namespace penstock
