// Two models without code, for builds without libtorch: the names and some options of ours, one of
// each type.
#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/text/quote.h"
#include "model/huggingface.h"
#include "model/model_config.h"

namespace penstock {
namespace {

constexpr std::array<std::string_view, 2> kModels = {"llama", "gpt2"};

struct LlamaOptions : ModelOptions {
  std::int64_t heads = 4;
  std::int64_t kv_heads = 0;
  double dropout = 0;

  std::vector<Field> Fields() override {
    return {{"heads", &heads, Changes::kModel, "", {.least = 1, .most = kMostModelSize}, "n_head"},
            {"kv_heads", &kv_heads, Changes::kModel, "", {.automatic = true}},
            {"dropout", &dropout, Changes::kPrograms, "", {.most = 0.99}}};
  }
};

struct Gpt2Options : ModelOptions {
  std::int64_t heads = 4;
  bool tied = true;

  std::vector<Field> Fields() override {
    return {{"heads", &heads, Changes::kModel, "", {.least = 1, .most = kMostModelSize}},
            {"tied", &tied, Changes::kModel, "", {}, "tie_word_embeddings"}};
  }
};

}  // namespace

std::unique_ptr<ModelOptions> MakeModelOptions(std::string_view model) {
  if (model == kModels[0]) return std::make_unique<LlamaOptions>();
  if (model == kModels[1]) return std::make_unique<Gpt2Options>();
  return nullptr;
}

Result<ModelConfig> ReadHuggingFaceConfig(const std::string& path) {
  return NotFound("{}: there are no files here", Quote(path));
}

bool HasHuggingFaceWeights(const std::string&) { return false; }

std::vector<std::string_view> ModelNames() { return {kModels.begin(), kModels.end()}; }

Status CheckModel(const ModelConfig& config) {
  const std::unique_ptr<ModelOptions> options = MakeModelOptions(config.name);
  if (options == nullptr) {
    return InvalidArgument("model.name: no model is named {}", Quote(config.name));
  }
  const std::vector<Field> fields = options->Fields();
  for (const Field& field : fields) {
    const auto given = config.options.find(field.key);
    if (given == config.options.end()) continue;
    PENSTOCK_TRY_STATUS(SetField(field, given->second));
  }
  const std::int64_t heads = *std::get<std::int64_t*>(fields.front().value);
  if (config.dim % heads == 0) return {};
  return InvalidArgument("model.dim {} over {} heads: each head needs an equal share", config.dim,
                         heads);
}

}  // namespace penstock
