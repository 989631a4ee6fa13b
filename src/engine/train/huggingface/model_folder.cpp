#include "train/huggingface/model_folder.h"

#include <filesystem>

#include "train/evaluation/finite.h"
#include "train/huggingface/follow_weights.h"
#include "train/model_fits.h"

namespace penstock {
namespace {

// As the transformers package, reads generation_config.json and without it config.json.
Result<std::vector<std::int64_t>> EndsOfText(const std::filesystem::path& folder) {
  std::error_code error;
  const auto generation = folder / "generation_config.json";
  const bool has_own = std::filesystem::exists(generation, error);
  return EosTokenIds((has_own ? generation : folder / "config.json").string());
}

}  // namespace

Result<ModelFolder> ModelFolder::Open(const std::string& folder) {
  PENSTOCK_TRY(ModelConfig config, ReadHuggingFaceConfig(folder));
  PENSTOCK_TRY(HuggingFaceWeights weights, HuggingFaceWeights::Open(folder));
  ModelFolder opened(folder, std::move(config), std::move(weights));
  PENSTOCK_TRY(const std::string tokenizer, TokenizerOfFolder(folder));
  PENSTOCK_TRY(opened.tokenizer_,
               OpenTokenizer(tokenizer.empty() ? std::string(kByteTokenizer) : tokenizer));
  const std::int64_t tokens = opened.tokenizer_.tokenizer->vocabulary_size();
  if (tokens > opened.config_.vocabulary) {
    return InvalidArgument("{}: the tokenizer {} has {} tokens, but the model only {}", folder,
                           opened.tokenizer_.name(), tokens, opened.config_.vocabulary);
  }
  PENSTOCK_TRY(opened.ends_of_text_, EndsOfText(folder));
  PENSTOCK_TRY(opened.notes_, FitModel(opened.weights_, folder, opened.config_));
  return opened;
}

Status ModelFolder::CheckFits(std::int64_t sequence) const {
  ModelConfig config = config_;
  config.sequence = sequence;
  PENSTOCK_TRY(const std::vector<LayerRange> ranges, SplitLayers(config.layers, 1, {}));
  return CheckModelFits(config, ranges, sequence);
}

Result<LanguageModel> ModelFolder::Load(std::int64_t sequence) const {
  ModelConfig config = config_;
  config.sequence = sequence;
  PENSTOCK_TRY(LanguageModel model, LanguageModel::Build(config));
  for (const auto& [name, value] : model.AllCopies()) {
    PENSTOCK_TRY_STATUS(weights_.Read(config, name, Layout(value.sizes().vec()), value));
  }
  PENSTOCK_TRY_STATUS(CheckFiniteWeights(model, folder_));
  return model;
}

}  // namespace penstock
