#include "tokens/huggingface/normalizer.h"

#include <map>

#include "base/text/strict_json.h"
#include "tokens/huggingface/json_parts.h"
#include "tokens/text/newer_characters.h"

namespace penstock {
namespace {

using nlohmann::json;

constexpr const char* kNormalizer = "normalizer";

const std::map<std::string, NormalForm, std::less<>> kForms = {{"NFC", NormalForm::kNfc},
                                                               {"NFD", NormalForm::kNfd},
                                                               {"NFKC", NormalForm::kNfkc},
                                                               {"NFKD", NormalForm::kNfkd}};

}  // namespace

Result<ReplaceStep> ReplaceStep::Read(const json& part, std::string_view what) {
  PENSTOCK_TRY(Pattern pattern, PatternMember(part, what));
  PENSTOCK_TRY(std::string content, TextMember(part, "content", what));
  return ReplaceStep{std::move(pattern), std::move(content)};
}

Result<std::string> ReplaceStep::Apply(std::string_view text, MatchState& state) const {
  std::string buffer;
  std::vector<TextSpan> matches;
  PENSTOCK_TRY_STATUS(
      pattern.FindAll(WithStandIns(text, buffer), {0, text.size()}, state, matches));
  std::string replaced;
  std::size_t copied = 0;
  for (const TextSpan& match : matches) {
    replaced.append(text, copied, match.begin - copied);
    replaced += content;
    copied = match.end;
  }
  replaced.append(text, copied);
  return replaced;
}

Result<Normalizer> Normalizer::Read(const json& file) {
  Normalizer normalizer;
  const auto add = [&](const json& part, const std::string& type) -> Status {
    if (const auto form = kForms.find(type); form != kForms.end()) {
      normalizer.steps_.emplace_back(form->second);
    } else if (type == "Prepend") {
      PENSTOCK_TRY(std::string content, TextMember(part, "prepend", kNormalizer));
      normalizer.steps_.emplace_back(PrependStep{std::move(content)});
    } else if (type == "Replace") {
      PENSTOCK_TRY(ReplaceStep step, ReplaceStep::Read(part, kNormalizer));
      normalizer.steps_.emplace_back(std::move(step));
    } else {
      return UnsupportedType(kNormalizer, type);
    }
    return {};
  };
  PENSTOCK_TRY_STATUS(ForEachPart(file, kNormalizer, "normalizers", add));
  return normalizer;
}

Result<std::string_view> Normalizer::Apply(std::string_view text, MatchState& state,
                                           std::string& buffer) const {
  for (const Step& step : steps_) {
    std::string changed;
    if (const auto* const form = std::get_if<NormalForm>(&step)) {
      AppendNormalized(text, *form, changed);
    } else if (const auto* const prepend = std::get_if<PrependStep>(&step)) {
      if (text.empty()) continue;
      changed = prepend->content;
      changed += text;
    } else {
      PENSTOCK_TRY(changed, std::get<ReplaceStep>(step).Apply(text, state));
    }
    buffer = std::move(changed);
    text = buffer;
  }
  return text;
}

}  // namespace penstock
