#include "tokens/kinds/open_tokenizer.h"

#include <fmt/ranges.h>
#include <sentencepiece_processor.h>

#include <algorithm>
#include <filesystem>

#include "base/digest.h"
#include "base/files.h"
#include "base/text/quote.h"
#include "base/text/strict_json.h"
#include "tokens/huggingface/tokenizer_json.h"
#include "tokens/kinds/byte_tokenizer.h"

namespace penstock {
namespace {

using sentencepiece::SentencePieceProcessor;

class SentencePieceEncoder : public Encoder {
 public:
  explicit SentencePieceEncoder(const SentencePieceProcessor& processor) : processor_(processor) {}

  Status Encode(std::string_view text, SpecialTokens /*special*/,
                std::vector<TokenId>& ids) override {
    const auto status = processor_.Encode({text.data(), text.size()}, &encoded_);
    if (!status.ok()) return InvalidArgument("SentencePiece: {}", Printable(status.ToString()));
    ids.insert(ids.end(), encoded_.begin(), encoded_.end());
    return {};
  }

 private:
  const SentencePieceProcessor& processor_;
  std::vector<int> encoded_;
};

class SentencePieceTokenizer : public Tokenizer {
 public:
  SentencePieceProcessor& processor() { return processor_; }

  std::unique_ptr<Encoder> MakeEncoder() const override {
    return std::make_unique<SentencePieceEncoder>(processor_);
  }
  std::string Decode(std::span<const TokenId> ids) const override {
    std::vector<int> known;
    for (const TokenId id : ids) {
      if (id < static_cast<TokenId>(processor_.GetPieceSize()))
        known.push_back(static_cast<int>(id));
    }
    std::string text;
    const auto status = processor_.Decode(known, &text);
    PENSTOCK_CHECK(status.ok(), "{}", status.ToString());
    return text;
  }
  std::int64_t vocabulary_size() const override { return processor_.GetPieceSize(); }
  std::optional<TokenId> IdOf(std::string_view token) const override {
    const int id = processor_.PieceToId({token.data(), token.size()});
    if (processor_.IdToPiece(id) != token) return std::nullopt;
    return static_cast<TokenId>(id);
  }
  std::optional<TokenId> end_of_text() const override {
    if (processor_.eos_id() < 0) return std::nullopt;
    return static_cast<TokenId>(processor_.eos_id());
  }

 private:
  SentencePieceProcessor processor_;
};

// Reads a model. Encode adds no special tokens, as SentencePiece's own. Errors: kInvalidArgument,
// one line without the file's name.
Result<std::unique_ptr<Tokenizer>> ReadSentencePiece(std::string_view model) {
  auto tokenizer = std::make_unique<SentencePieceTokenizer>();
  const auto status = tokenizer->processor().LoadFromSerializedProto({model.data(), model.size()});
  if (!status.ok()) {
    return InvalidArgument("it is not a model of SentencePiece: {}", Printable(status.ToString()));
  }
  if (tokenizer->vocabulary_size() <= 0) return InvalidArgument("the vocabulary is empty");
  return tokenizer;
}

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kJson = "tokenizer.json";
constexpr const char* kModel = "tokenizer.model";
constexpr const char* kConfig = "tokenizer_config.json";
constexpr const char* kGeneration = "generation_config.json";
// Files of tokenizers that are not read, by the ends of their names.
constexpr std::string_view kOtherKinds[] = {"tokenizer_config.json",
                                            "special_tokens_map.json",
                                            "vocab.json",
                                            "merges.txt",
                                            "vocab.txt",
                                            "vocab.bpe",
                                            "encoder.json",
                                            ".model",
                                            ".model.v1",
                                            ".model.v2",
                                            ".model.v3",
                                            ".spm",
                                            "tekken.json",
                                            ".tiktoken"};
constexpr FileLimit kTokenizerLimit{std::size_t{256} << 20U, "tokenizer"};
constexpr int kDeepestConfig = 16;

// Whether something has the name. What cannot be read, such as a pipe or a dangling link, is
// refused when it is opened, not ignored.
bool Exists(const fs::path& path) {
  std::error_code error;
  return fs::exists(fs::symlink_status(path, error));
}

// Returns the content of the token, which is a text or an object; empty if the file has none.
Result<std::string> EosToken(const std::string& path) {
  PENSTOCK_TRY(const std::string text, ReadFile(path, kTokenizerLimit));
  PENSTOCK_TRY(const json config, ParseStrictJson(text, kDeepestConfig));
  const auto token = config.find("eos_token");
  if (token == config.end() || token->is_null()) return std::string();
  if (token->is_string()) return token->get<std::string>();
  return TextMember(*token, "content", "eos_token");
}

Result<std::vector<std::int64_t>> ParseEosTokenIds(std::string_view text) {
  PENSTOCK_TRY(const json config, ParseStrictJson(text, kDeepestConfig));
  const json given = config.value("eos_token_id", json());
  std::vector<std::int64_t> ids;
  for (const json& id : given.is_array() || given.is_null() ? given : json::array({given})) {
    if (!id.is_number_integer()) {
      return InvalidArgument("eos_token_id: a whole number or a list of them is needed");
    }
    ids.push_back(id.get<std::int64_t>());
  }
  return ids;
}

Result<OpenedTokenizer> OpenFile(const std::string& path) {
  PENSTOCK_TRY(const std::string content, ReadFile(path, kTokenizerLimit));
  OpenedTokenizer opened;
  opened.files = {path};
  std::string end_of_text;
  const std::string config = (fs::path(path).parent_path() / kConfig).string();
  if (Exists(config)) {
    opened.files.push_back(config);
    auto read = EosToken(config);
    if (!read) return tl::unexpected(In(config, std::move(read).error()));
    end_of_text = *std::move(read);
  }
  const std::string generation = (fs::path(path).parent_path() / kGeneration).string();
  if (Exists(generation)) {
    opened.files.push_back(generation);
    PENSTOCK_TRY(opened.ends_of_text, EosTokenIds(generation));
  }
  auto tokenizer = path.ends_with(".model") ? ReadSentencePiece(content)
                                            : ReadTokenizerJson(content, end_of_text);
  if (!tokenizer) return tl::unexpected(In(path, std::move(tokenizer).error()));
  opened.tokenizer = *std::move(tokenizer);
  opened.digest = NamedDigest(content);
  return opened;
}

}  // namespace

Result<OpenedTokenizer> OpenTokenizer(const std::string& path) {
  if (path == kByteTokenizer) return OpenedTokenizer{MakeByteTokenizer(), path, {}};
  std::error_code error;
  if (!fs::exists(path, error)) {
    return NotFound(
        "no tokenizer at {}: give a tokenizer.json, a tokenizer.model, a folder with one "
        "of them, or 'bytes'",
        path);
  }
  if (!fs::is_directory(path, error)) return OpenFile(path);
  for (const char* const name : {kJson, kModel}) {
    const fs::path file = fs::path(path) / name;
    if (Exists(file)) return OpenFile(file.string());
  }
  return NotFound("{} has neither {} nor {}", path, kJson, kModel);
}

bool HasTokenizer(const std::string& folder) {
  return Exists(fs::path(folder) / kJson) || Exists(fs::path(folder) / kModel);
}

Result<std::string> TokenizerOfFolder(const std::string& folder) {
  if (HasTokenizer(folder)) return folder;
  std::error_code error;
  std::vector<std::string> others;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    const auto is_suffix = [&](std::string_view end) { return name.ends_with(end); };
    if (std::ranges::any_of(kOtherKinds, is_suffix)) others.push_back(Printable(name));
  }
  if (others.empty()) return std::string();
  std::ranges::sort(others);
  return InvalidArgument(
      "{} has a tokenizer that is not read ({}), and neither {} nor {}: save it as {} with the "
      "transformers package (AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR))",
      Printable(folder), fmt::join(others, ", "), kJson, kModel, kJson);
}

Result<std::vector<std::int64_t>> EosTokenIds(const std::string& path) {
  PENSTOCK_TRY(const std::string text, ReadFile(path, kTokenizerLimit));
  auto ids = ParseEosTokenIds(text);
  if (!ids) return tl::unexpected(In(path, std::move(ids).error()));
  return ids;
}

}  // namespace penstock
