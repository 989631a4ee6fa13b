#include "train/data/run_tokenizer.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <optional>

#include "base/files.h"
#include "tokens/files/token_folder.h"
#include "train/data/blend.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kTokenizerFiles[] = {"tokenizer.json", "tokenizer.model",
                                                "tokenizer_config.json", "generation_config.json"};
constexpr const char* kRunFile = "config.yaml";  // in the folder of every run

// Returns the tokenizer that the data itself names.
Result<std::string> TokenizerOfData(const DataConfig& data) {
  std::string path = data.path;
  if (!data.blend.empty()) {
    PENSTOCK_TRY(const std::vector<BlendPart> parts, ParseBlend(data.blend));
    path = parts.front().path;
  }
  if (!data.blend.empty() || IsTokenFolder(path)) {
    PENSTOCK_TRY(const TokenIndex index, ReadTokenIndex(path));
    return TokenizerOfTokens(path, index);
  }
  return data.tokenizer.empty() ? std::string(kByteTokenizer) : data.tokenizer;
}

}  // namespace

bool IsTokenizerFile(std::string_view name) {
  return std::ranges::find(kTokenizerFiles, name) != std::end(kTokenizerFiles);
}

Result<std::vector<std::string>> CopyTokenizer(const OpenedTokenizer& tokenizer,
                                               const std::string& folder) {
  std::vector<std::pair<std::string, std::string>> copies;  // paths and contents
  for (const std::string& file : tokenizer.files) {
    PENSTOCK_TRY(std::string content, ReadFile(file));
    copies.emplace_back((fs::path(folder) / fs::path(file).filename()).string(),
                        std::move(content));
  }
  std::error_code error;
  for (const std::string_view name : kTokenizerFiles) fs::remove(fs::path(folder) / name, error);
  std::vector<std::string> written;
  for (const auto& [path, content] : copies) {
    PENSTOCK_TRY_STATUS(WriteFileAtomically(path, content));
    written.push_back(path);
  }
  return written;
}

Result<OpenedTokenizer> TokenizerOfRun(const std::string& checkpoint, const DataConfig& data) {
  std::error_code error;
  fs::path folder = fs::absolute(checkpoint, error).lexically_normal();
  // RUN/checkpoints/step-N or RUN/model.safetensors. A run may be in the folder of a model, whose
  // tokenizer is another one.
  for (int level = 0; level < 3 && !error; ++level, folder = folder.parent_path()) {
    if (HasTokenizer(folder.string())) return OpenTokenizer(folder.string());
    if (fs::exists(folder / kRunFile, error)) break;
  }
  PENSTOCK_TRY(const std::string path, TokenizerOfData(data));
  return OpenTokenizer(path);
}

Result<TokenId> EndOfDocument(const OpenedTokenizer& tokenizer, std::string_view key) {
  const std::optional<std::int64_t> end = tokenizer.tokenizer->end_of_text();
  if (end) return static_cast<TokenId>(*end);
  return InvalidArgument(
      "{}: the tokenizer {} has no token that ends documents; name its eos_token in a "
      "tokenizer_config.json next to it",
      key, tokenizer.files.empty() ? kByteTokenizer : tokenizer.files.front());
}

Status SetDocumentEnd(const OpenedTokenizer& tokenizer, TrainConfig& config) {
  if (!config.data.document_mask) return {};
  PENSTOCK_TRY(config.model.document_end, EndOfDocument(tokenizer, "data.document_mask"));
  return CheckModel(config.model);
}

Status SetDocumentEnd(TrainConfig& config) {
  if (!config.data.document_mask) return {};
  PENSTOCK_TRY(const std::string path, TokenizerOfData(config.data));
  PENSTOCK_TRY(const OpenedTokenizer tokenizer, OpenTokenizer(path));
  return SetDocumentEnd(tokenizer, config);
}

}  // namespace penstock
