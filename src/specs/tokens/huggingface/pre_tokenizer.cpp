#include "tokens/huggingface/pre_tokenizer.h"

#include <algorithm>
#include <map>

#include "base/text/quote.h"
#include "base/text/strict_json.h"
#include "tokens/bpe/byte_alphabet.h"
#include "tokens/huggingface/json_parts.h"
#include "tokens/text/newer_characters.h"

namespace penstock {
namespace {

using nlohmann::json;

constexpr const char* kPreTokenizer = "pre_tokenizer";
// GPT-2's pattern, which ByteLevel parts use.
constexpr std::string_view kByteLevelWords =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// Here, the package's words have joiners.
constexpr std::string_view kWhitespaceWords = R"([\w\x{200C}\x{200D}]+|[^\w\s\x{200C}\x{200D}]+)";

}  // namespace

Result<PreTokenizer> PreTokenizer::Read(const json& file) {
  PreTokenizer pre_tokenizer;
  PENSTOCK_TRY_STATUS(ForEachPart(
      file, kPreTokenizer, "pretokenizers",
      [&](const json& part, const std::string& type) { return pre_tokenizer.Add(part, type); }));
  std::vector<Step>& steps = pre_tokenizer.steps_;
  // The model maps bytes faster than a copy of the text.
  if (!steps.empty() && std::holds_alternative<BytesStep>(steps.back())) {
    steps.pop_back();
    pre_tokenizer.byte_level_ = true;
  }
  return pre_tokenizer;
}

Status PreTokenizer::Add(const json& part, const std::string& type) {
  if (type == "Split") return AddSplit(part);
  if (type == "ByteLevel") return AddByteLevel(part);
  if (type == "Metaspace") return AddMetaspace(part);
  if (type == "WhitespaceSplit") return AddRegex(R"(\s)", Behavior::kRemoved);
  if (type == "Whitespace") {
    PENSTOCK_TRY_STATUS(AddRegex(kWhitespaceWords, Behavior::kRemoved));
    std::get<SplitStep>(steps_.back()).invert = true;
    return {};
  }
  if (type == "Digits") {
    PENSTOCK_TRY(const bool each, FlagMember(part, "individual_digits", kPreTokenizer, false));
    return AddRegex(R"(\p{N})", each ? Behavior::kIsolated : Behavior::kContiguous);
  }
  return UnsupportedType(kPreTokenizer, type);
}

Status PreTokenizer::AddRegex(std::string_view expression, Behavior behavior) {
  PENSTOCK_TRY(Pattern pattern, Pattern::Regex(expression));
  steps_.emplace_back(SplitStep{std::move(pattern), behavior});
  return {};
}

Status PreTokenizer::AddSplit(const json& part) {
  static const std::map<std::string, Behavior, std::less<>> behaviors = {
      {"Removed", Behavior::kRemoved},
      {"Isolated", Behavior::kIsolated},
      {"MergedWithPrevious", Behavior::kMergedWithPrevious},
      {"MergedWithNext", Behavior::kMergedWithNext},
      {"Contiguous", Behavior::kContiguous}};
  PENSTOCK_TRY(Pattern pattern, PatternMember(part, kPreTokenizer));
  PENSTOCK_TRY(const std::string name, TextMember(part, "behavior", kPreTokenizer));
  PENSTOCK_TRY(const bool invert, FlagMember(part, "invert", kPreTokenizer, false));
  const auto behavior = behaviors.find(name);
  if (behavior == behaviors.end()) {
    return InvalidArgument("{}: the behavior {} is not supported", kPreTokenizer, Quote(name));
  }
  steps_.emplace_back(SplitStep{std::move(pattern), behavior->second, invert});
  return {};
}

Status PreTokenizer::AddMetaspace(const json& part) {
  PENSTOCK_TRY(std::string space, TextMember(part, "replacement", kPreTokenizer));
  PENSTOCK_TRY(const bool prefixes, FlagMember(part, "add_prefix_space", kPreTokenizer, true));
  PENSTOCK_TRY(std::string scheme, OptionalText(part, "prepend_scheme", kPreTokenizer));
  PENSTOCK_TRY(const bool split, FlagMember(part, "split", kPreTokenizer, true));
  if (space.empty()) return InvalidArgument("{}: the replacement is empty", kPreTokenizer);
  if (scheme.empty()) scheme = prefixes ? "always" : "never";
  if (scheme != "always" && scheme != "first" && scheme != "never") {
    return InvalidArgument("{}: the prepend_scheme {} is not supported", kPreTokenizer,
                           Quote(scheme));
  }
  const Prefix prefix = scheme == "always"  ? Prefix::kAlways
                        : scheme == "first" ? Prefix::kFirst
                                            : Prefix::kNever;
  steps_.emplace_back(SpaceStep{space, prefix});
  if (split) steps_.emplace_back(SplitStep{Pattern::Literal(space), Behavior::kMergedWithNext});
  return {};
}

Status PreTokenizer::AddByteLevel(const json& part) {
  PENSTOCK_TRY(const bool prefix, FlagMember(part, "add_prefix_space", kPreTokenizer, true));
  PENSTOCK_TRY(const bool use_regex, FlagMember(part, "use_regex", kPreTokenizer, true));
  if (prefix) steps_.emplace_back(SpaceStep{" ", Prefix::kAlways});
  if (use_regex) PENSTOCK_TRY_STATUS(AddRegex(kByteLevelWords, Behavior::kIsolated));
  steps_.emplace_back(BytesStep{});
  return {};
}

Status PreTokenizer::Split(SplitText& words, MatchState& state) const {
  words.spans.clear();
  if (!words.text.empty()) words.spans.push_back({0, words.text.size()});
  for (const Step& step : steps_) {
    if (const auto* const split = std::get_if<SplitStep>(&step)) {
      PENSTOCK_TRY_STATUS(Apply(*split, words, state));
    } else if (const auto* const space = std::get_if<SpaceStep>(&step)) {
      Apply(*space, words);
    } else {
      Apply(BytesStep{}, words);
    }
  }
  return {};
}

Status PreTokenizer::Apply(const SplitStep& step, SplitText& words, MatchState& state) {
  const std::string_view subject = WithStandIns(words.text, words.stand_ins);
  words.next.clear();
  for (const TextSpan& word : words.spans) {
    words.matches.clear();
    PENSTOCK_TRY_STATUS(step.pattern.FindAll(subject, word, state, words.matches));
    SplitWord(step, word, words);
  }
  std::swap(words.spans, words.next);
  return {};
}

// Matches and the text between them are parts, which the behavior removes or joins.
void PreTokenizer::SplitWord(const SplitStep& step, TextSpan word, SplitText& words) {
  std::vector<TextSpan>& to = words.next;
  const std::size_t first = to.size();
  bool previous = false;  // whether the previous part was a delimiter
  bool joins_next = false;
  const auto add = [&](TextSpan part, bool matches) {
    if (part.begin == part.end) return;
    const bool delimits = matches != step.invert;
    const bool has_previous = to.size() > first;
    bool joins = false;
    switch (step.behavior) {
      case Behavior::kRemoved:
        if (!delimits) to.push_back(part);
        return;
      case Behavior::kIsolated:
        break;
      case Behavior::kContiguous:
        joins = delimits == previous;
        break;
      case Behavior::kMergedWithPrevious:
        joins = delimits && !previous;
        break;
      case Behavior::kMergedWithNext:
        joins = joins_next && !delimits;
        joins_next = delimits;
        break;
    }
    previous = delimits;
    if (joins && has_previous) {
      to.back().end = part.end;
    } else {
      to.push_back(part);
    }
  };
  std::size_t begin = word.begin;
  for (const TextSpan& match : words.matches) {
    add({begin, match.begin}, false);
    add(match, true);
    begin = match.end;
  }
  add({begin, word.end}, false);
}

void PreTokenizer::Apply(const SpaceStep& step, SplitText& words) {
  std::string& to = words.other;
  to.clear();
  for (TextSpan& word : words.spans) {
    const std::string_view text = words.text.substr(word.begin, word.end - word.begin);
    const bool is_first = words.at_start && word.begin == 0;
    const std::size_t begin = to.size();
    const bool has_space = text.front() == ' ' || text.starts_with(step.space);
    const bool prefixes =
        step.prefix == Prefix::kAlways || (step.prefix == Prefix::kFirst && is_first);
    if (prefixes && !has_space) to += step.space;
    for (const char c : text) {
      if (c == ' ') {
        to += step.space;
      } else {
        to += c;
      }
    }
    word = {begin, to.size()};
  }
  std::swap(words.owned, words.other);
  words.text = words.owned;
}

void PreTokenizer::Apply(const BytesStep& /*step*/, SplitText& words) {
  std::string& to = words.other;
  to.clear();
  for (TextSpan& word : words.spans) {
    const std::size_t begin = to.size();
    for (std::size_t at = word.begin; at < word.end; ++at) {
      to += CharacterOfByte(static_cast<std::uint8_t>(words.text[at]));
    }
    word = {begin, to.size()};
  }
  std::swap(words.owned, words.other);
  words.text = words.owned;
}

}  // namespace penstock
