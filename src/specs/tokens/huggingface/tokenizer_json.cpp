#include "tokens/huggingface/tokenizer_json.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/text/quote.h"
#include "base/text/strict_json.h"
#include "tokens/bpe/byte_pair_model.h"
#include "tokens/huggingface/added_tokens.h"
#include "tokens/huggingface/decoder.h"
#include "tokens/huggingface/json_parts.h"
#include "tokens/huggingface/normalizer.h"
#include "tokens/huggingface/pre_tokenizer.h"
#include "tokens/text/utf8.h"

namespace penstock {
namespace {

// The tokens that a tokenizer puts before and after every text.
struct Template {
  std::vector<TokenId> before;
  std::vector<TokenId> after;

  // Reads the member "post_processor" of the file. Errors: kInvalidArgument for what is not
  // supported.
  static Result<Template> Read(const nlohmann::json& file);
};

using nlohmann::json;

constexpr const char* kPostProcessor = "post_processor";

// Returns the ids of a special token that the template names.
Result<std::vector<TokenId>> IdsOfSpecial(const json& part, const std::string& name) {
  PENSTOCK_TRY(const json* const all, MemberOf(part, "special_tokens", kPostProcessor));
  PENSTOCK_TRY(const json* const token, MemberOf(*all, name.c_str(), kPostProcessor));
  PENSTOCK_TRY(const json* const values, MemberOf(*token, "ids", kPostProcessor));
  std::vector<TokenId> ids;
  for (const json& value : *values) {
    PENSTOCK_TRY(const TokenId id, ReadId(value, kPostProcessor));
    ids.push_back(id);
  }
  return ids;
}

Status AddTemplate(const json& part, Template& to) {
  PENSTOCK_TRY(const json* const items, MemberOf(part, "single", kPostProcessor));
  std::vector<TokenId> before;
  std::vector<TokenId> after;
  bool has_text = false;
  if (!items->is_array()) return InvalidArgument("{}: 'single' is not a list", kPostProcessor);
  for (const json& item : *items) {
    if (item.is_object() && item.contains("Sequence")) {
      if (has_text) return InvalidArgument("{}: the text appears twice", kPostProcessor);
      has_text = true;
      continue;
    }
    PENSTOCK_TRY(const json* const special, MemberOf(item, "SpecialToken", kPostProcessor));
    PENSTOCK_TRY(const std::string name, TextMember(*special, "id", kPostProcessor));
    PENSTOCK_TRY(const std::vector<TokenId> ids, IdsOfSpecial(part, name));
    std::vector<TokenId>& side = has_text ? after : before;
    side.insert(side.end(), ids.begin(), ids.end());
  }
  if (!has_text) return InvalidArgument("{}: the template lacks the text", kPostProcessor);
  to.before.insert(to.before.begin(), before.begin(), before.end());
  to.after.insert(to.after.end(), after.begin(), after.end());
  return {};
}

Result<Template> Template::Read(const json& file) {
  Template read;
  PENSTOCK_TRY_STATUS(ForEachPart(file, kPostProcessor, "processors",
                                  [&](const json& part, const std::string& type) -> Status {
                                    if (type == "TemplateProcessing")
                                      return AddTemplate(part, read);
                                    // It changes only offsets.
                                    if (type == "ByteLevel") return {};
                                    return UnsupportedType(kPostProcessor, type);
                                  }));
  return read;
}

constexpr int kDeepest = 16;
constexpr std::size_t kLongestText = std::size_t{1} << 30U;  // ICU's lengths are 32 bits
constexpr std::string_view kEndsOfText[] = {"<|endoftext|>", "<|end_of_text|>", "</s>",
                                            "<｜end▁of▁sentence｜>", "<eos>"};

struct HuggingFaceParts {
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  std::vector<AddedToken> added;
  AddedTokenFinder in_text;        // of tokens that are not normalized
  AddedTokenFinder in_normalized;  // of the others
  Template around;
  Decoder decoder;
  std::unique_ptr<BytePairModel> model;
  std::vector<std::string> tokens;  // by id
  std::vector<bool> special;        // by id
  Vocabulary ids;
};

class HuggingFaceEncoder : public Encoder {
 public:
  explicit HuggingFaceEncoder(const HuggingFaceParts& parts) : parts_(parts) {}

  Status Encode(std::string_view text, SpecialTokens special, std::vector<TokenId>& ids) override {
    if (text.size() > kLongestText) {
      return InvalidArgument("a text of {} bytes is longer than 1 GiB: split it", text.size());
    }
    const bool adds = special == SpecialTokens::kAdd;
    const Template& around = parts_.around;
    if (adds) ids.insert(ids.end(), around.before.begin(), around.before.end());
    text = ValidUtf8(text, valid_);
    parts_of_text_.clear();
    parts_.in_text.Split(text, parts_of_text_);
    for (const TextPart& part : parts_of_text_) {
      if (part.token) {
        ids.push_back(*part.token);
      } else {
        PENSTOCK_TRY_STATUS(EncodeText(part.text, part.text.data() == text.data(), ids));
      }
    }
    if (adds) ids.insert(ids.end(), around.after.begin(), around.after.end());
    return {};
  }

 private:
  // `at_start`: whether it is the start of the whole text.
  Status EncodeText(std::string_view text, bool at_start, std::vector<TokenId>& ids) {
    PENSTOCK_TRY(text, parts_.normalizer.Apply(text, state_, normalized_));
    parts_of_normalized_.clear();
    parts_.in_normalized.Split(text, parts_of_normalized_);
    for (const TextPart& part : parts_of_normalized_) {
      if (part.token) {
        ids.push_back(*part.token);
        continue;
      }
      words_.text = part.text;
      words_.at_start = at_start && part.text.data() == text.data();
      PENSTOCK_TRY_STATUS(parts_.pre_tokenizer.Split(words_, state_));
      for (const TextSpan& word : words_.spans) {
        parts_.model->EncodeWord(words_.text.substr(word.begin, word.end - word.begin), scratch_,
                                 ids);
      }
    }
    return {};
  }

  const HuggingFaceParts& parts_;
  MatchState state_;
  WordScratch scratch_;
  SplitText words_;
  std::string valid_, normalized_;
  std::vector<TextPart> parts_of_text_, parts_of_normalized_;
};

class HuggingFaceTokenizer : public Tokenizer {
 public:
  HuggingFaceTokenizer(HuggingFaceParts parts, std::optional<TokenId> end_of_text)
      : parts_(std::move(parts)), end_of_text_(end_of_text) {}

  std::unique_ptr<Encoder> MakeEncoder() const override {
    return std::make_unique<HuggingFaceEncoder>(parts_);
  }
  std::string Decode(std::span<const TokenId> ids) const override {
    std::vector<std::string> tokens;
    for (const TokenId id : ids) {
      if (id >= parts_.tokens.size() || parts_.special[id]) continue;
      tokens.push_back(parts_.tokens[id]);
    }
    return parts_.decoder.Decode(std::move(tokens));
  }
  std::int64_t vocabulary_size() const override {
    return static_cast<std::int64_t>(parts_.tokens.size());
  }
  std::optional<TokenId> IdOf(std::string_view token) const override {
    const auto found = parts_.ids.find(std::string(token));
    if (found == parts_.ids.end()) return std::nullopt;
    return found->second;
  }
  std::optional<TokenId> end_of_text() const override { return end_of_text_; }

 private:
  HuggingFaceParts parts_;
  std::optional<TokenId> end_of_text_;
};

Result<std::vector<std::pair<std::string, std::string>>> ReadMerges(const json& model) {
  std::vector<std::pair<std::string, std::string>> merges;
  PENSTOCK_TRY(const json* const list, MemberOf(model, "merges", "model"));
  if (!list->is_array()) return InvalidArgument("model: 'merges' is not a list");
  for (const json& merge : *list) {
    if (merge.is_string()) {
      const auto& text = merge.get_ref<const std::string&>();
      const std::size_t space = text.find(' ');
      if (space != text.npos && text.find(' ', space + 1) == text.npos) {
        merges.emplace_back(text.substr(0, space), text.substr(space + 1));
        continue;
      }
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() &&
               merge[1].is_string()) {
      merges.emplace_back(merge[0].get<std::string>(), merge[1].get<std::string>());
      continue;
    }
    return InvalidArgument("model: merge {} is not a pair of tokens", merges.size());
  }
  return merges;
}

// Options of byte-pair encoding that we do not have must have no effect.
Status CheckModelOptions(const json& model) {
  for (const char* const key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    PENSTOCK_TRY(const std::string text, OptionalText(model, key, "model"));
    if (!text.empty()) return InvalidArgument("model: {} {} is not supported", key, Quote(text));
  }
  const auto dropout = model.find("dropout");
  if (dropout == model.end() || dropout->is_null() || *dropout == 0) return {};
  return InvalidArgument("model: dropout is not supported");
}

Result<BytePairParts> ReadModel(const json& file) {
  PENSTOCK_TRY(const json* const model, MemberOf(file, "model", "it"));
  if (!model->is_object()) return InvalidArgument("'model' is not an object");
  // Old files do not name it.
  PENSTOCK_TRY(const std::string type, OptionalText(*model, "type", "model"));
  if (!type.empty() && type != "BPE") return UnsupportedType("model", type);
  PENSTOCK_TRY_STATUS(CheckModelOptions(*model));
  BytePairParts parts;
  PENSTOCK_TRY(const json* const vocabulary, MemberOf(*model, "vocab", "model"));
  if (!vocabulary->is_object()) return InvalidArgument("model: 'vocab' is not an object");
  for (const auto& [token, id] : vocabulary->items()) {
    PENSTOCK_TRY(const std::uint32_t value, ReadId(id, "vocab"));
    parts.vocabulary.emplace(token, value);
  }
  PENSTOCK_TRY(parts.merges, ReadMerges(*model));
  PENSTOCK_TRY(const std::string unknown, OptionalText(*model, "unk_token", "model"));
  if (!unknown.empty()) parts.unknown = unknown;
  PENSTOCK_TRY(parts.fuse_unknown, FlagMember(*model, "fuse_unk", "model", false));
  PENSTOCK_TRY(parts.byte_fallback, FlagMember(*model, "byte_fallback", "model", false));
  PENSTOCK_TRY(parts.ignore_merges, FlagMember(*model, "ignore_merges", "model", false));
  return parts;
}

// Sets the tokens by id, and where the added ones are found.
Status AddTokens(HuggingFaceParts& parts) {
  const auto add = [&](const std::string& token, TokenId id) {
    if (id >= parts.tokens.size()) parts.tokens.resize(std::size_t{id} + 1);
    parts.tokens[id] = token;
  };
  for (const auto& [token, id] : parts.ids) add(token, id);
  MatchState state;
  std::string buffer;
  for (AddedToken& token : parts.added) {
    const auto known = parts.ids.find(token.content);
    if (known != parts.ids.end()) token.id = known->second;
    parts.ids.emplace(token.content, token.id);
    add(token.content, token.id);
    if (!token.normalized) {
      parts.in_text.Add(token, token.content);
      continue;
    }
    PENSTOCK_TRY(const std::string_view normalized,
                 parts.normalizer.Apply(token.content, state, buffer));
    parts.in_normalized.Add(token, std::string(normalized));
    // As the package does: the token decodes to what was found, which may not be the special one.
    parts.tokens[token.id] = normalized;
    token.special = token.special && normalized == token.content;
  }
  parts.special.resize(parts.tokens.size());
  for (const AddedToken& token : parts.added) {
    if (token.special) parts.special[token.id] = true;
  }
  return {};
}

Result<std::optional<TokenId>> EndOfText(const HuggingFaceParts& parts, const std::string& name) {
  if (!name.empty()) {
    const auto found = parts.ids.find(name);
    if (found != parts.ids.end()) return found->second;
    return InvalidArgument("the vocabulary lacks the end of text {}", Quote(name));
  }
  for (const std::string_view usual : kEndsOfText) {
    for (const AddedToken& token : parts.added) {
      if (token.special && token.content == usual) return token.id;
    }
  }
  return std::optional<TokenId>();
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> ReadTokenizerJson(std::string_view text,
                                                     const std::string& end_of_text) {
  PENSTOCK_TRY(const json file, ParseStrictJson(text, kDeepest));
  HuggingFaceParts parts;
  PENSTOCK_TRY(BytePairParts model, ReadModel(file));
  PENSTOCK_TRY(parts.normalizer, Normalizer::Read(file));
  PENSTOCK_TRY(parts.pre_tokenizer, PreTokenizer::Read(file));
  PENSTOCK_TRY(parts.added, ReadAddedTokens(file));
  PENSTOCK_TRY(parts.around, Template::Read(file));
  PENSTOCK_TRY(parts.decoder, Decoder::Read(file));
  parts.ids = model.vocabulary;
  model.byte_level = parts.pre_tokenizer.byte_level();
  PENSTOCK_TRY(BytePairModel made, BytePairModel::Make(std::move(model)));
  parts.model = std::make_unique<BytePairModel>(std::move(made));
  PENSTOCK_TRY_STATUS(AddTokens(parts));
  if (parts.tokens.empty()) return InvalidArgument("the vocabulary is empty");
  for (const auto* const side : {&parts.around.before, &parts.around.after}) {
    for (const TokenId id : *side) {
      if (id >= parts.tokens.size()) {
        return InvalidArgument("post_processor: the vocabulary lacks the id {}", id);
      }
    }
  }
  PENSTOCK_TRY(const auto end, EndOfText(parts, end_of_text));
  return std::make_unique<HuggingFaceTokenizer>(std::move(parts), end);
}

}  // namespace penstock
