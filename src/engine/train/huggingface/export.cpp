// ExportHuggingFace().
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "base/folders.h"
#include "model_spec/huggingface_config.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/safetensors.h"
#include "train/data/run_tokenizer.h"
#include "train/evaluation/language_model.h"
#include "train/guard.h"
#include "train/train.h"

namespace penstock {
namespace {

void Add(const HuggingFaceName& theirs, const at::Tensor& value, Safetensors& content) {
  if (theirs.layout == TensorLayout::kPerExpert) {
    for (std::int64_t expert = 0; expert < value.size(0); ++expert) {
      content.tensors.emplace(theirs.OfExpert(expert), value.select(0, expert));
    }
    return;
  }
  const bool transposed = theirs.layout == TensorLayout::kTransposed;
  content.tensors.emplace(theirs.name, transposed ? value.t().contiguous() : value);
}

// Adds the tokens that end a text, which the transformers package takes from its default otherwise.
std::string WithEndOfText(const std::string& config, const OpenedTokenizer& tokenizer) {
  auto root = nlohmann::ordered_json::parse(config);
  root["bos_token_id"] = nullptr;
  root["eos_token_id"] = nullptr;
  const bool is_bytes = tokenizer.files.empty();
  if (!tokenizer.ends_of_text.empty()) {
    root["eos_token_id"] = tokenizer.ends_of_text;
  } else if (const auto end = tokenizer.tokenizer->end_of_text(); end && !is_bytes) {
    root["eos_token_id"] = *end;
  }
  return root.dump(2) + "\n";
}

Result<std::vector<std::string>> Export(const std::string& path, const std::string& folder,
                                        bool ema) {
  PENSTOCK_TRY(Checkpoint checkpoint, ema ? OpenFullCheckpoint(path) : OpenCheckpoint(path));
  const ModelConfig& config = checkpoint.info.config.model;
  PENSTOCK_TRY(const std::string text, HuggingFaceConfigText(config));
  PENSTOCK_TRY(const LanguageModel model, LanguageModel::Build(config));
  PENSTOCK_TRY_STATUS(ema ? SetAverages(checkpoint, model) : SetWeights(checkpoint, model));
  Safetensors content;
  content.metadata["format"] = "pt";  // which the transformers package requires
  for (const auto& [name, value] : model.Parameters()) {
    PENSTOCK_TRY(const HuggingFaceName theirs, HuggingFaceNameOf(config, name));
    Add(theirs, value, content);
  }
  PENSTOCK_TRY_STATUS(CreateFolders(folder));
  const std::filesystem::path root(folder);
  std::vector<std::string> files = {(root / "model.safetensors").string(),
                                    (root / "config.json").string()};
  PENSTOCK_TRY_STATUS(WriteSafetensors(files[0], content));
  PENSTOCK_TRY(const OpenedTokenizer tokenizer,
               TokenizerOfRun(checkpoint.path(), checkpoint.info.config.data));
  PENSTOCK_TRY_STATUS(WriteFileAtomically(files[1], WithEndOfText(text, tokenizer)));
  PENSTOCK_TRY(const std::vector<std::string> copies, CopyTokenizer(tokenizer, folder));
  files.insert(files.end(), copies.begin(), copies.end());
  return files;
}

}  // namespace

Result<std::vector<std::string>> ExportHuggingFace(const std::string& checkpoint,
                                                   const std::string& folder, bool ema) {
  return Guard<std::vector<std::string>>([&] { return Export(checkpoint, folder, ema); });
}

}  // namespace penstock
