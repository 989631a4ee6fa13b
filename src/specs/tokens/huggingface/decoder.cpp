#include "tokens/huggingface/decoder.h"

#include <optional>

#include "base/text/strict_json.h"
#include "tokens/bpe/byte_alphabet.h"
#include "tokens/huggingface/json_parts.h"
#include "tokens/text/utf8.h"

namespace penstock {
namespace {

using nlohmann::json;

constexpr const char* kDecoder = "decoder";
constexpr std::size_t kByteTokenLength = 6;  // <0x0A>
constexpr std::string_view kBroken = "\xEF\xBF\xBD";

std::optional<std::uint8_t> ByteOfToken(std::string_view token) {
  if (token.size() != kByteTokenLength || !token.starts_with("<0x") || !token.ends_with('>')) {
    return std::nullopt;
  }
  int value = 0;
  for (const char c : token.substr(3, 2)) {
    const std::string_view digits = "0123456789ABCDEF";
    const std::size_t digit = digits.find(static_cast<char>(c >= 'a' ? c - 'a' + 'A' : c));
    if (digit == digits.npos) return std::nullopt;
    value = value * 16 + static_cast<int>(digit);
  }
  return static_cast<std::uint8_t>(value);
}

}  // namespace

Result<Decoder> Decoder::Read(const json& file) {
  Decoder decoder;
  PENSTOCK_TRY_STATUS(ForEachPart(
      file, kDecoder, "decoders",
      [&](const json& part, const std::string& type) { return decoder.Add(part, type); }));
  return decoder;
}

Status Decoder::Add(const json& part, const std::string& type) {
  if (type == "ByteLevel") {
    steps_.emplace_back(ByteLevelStep{});
  } else if (type == "ByteFallback") {
    steps_.emplace_back(FallbackStep{});
  } else if (type == "Fuse") {
    steps_.emplace_back(FuseStep{});
  } else if (type == "Metaspace") {
    PENSTOCK_TRY(std::string space, TextMember(part, "replacement", kDecoder));
    PENSTOCK_TRY(const std::string scheme, OptionalText(part, "prepend_scheme", kDecoder));
    PENSTOCK_TRY(const bool prefixes, FlagMember(part, "add_prefix_space", kDecoder, true));
    if (space.empty()) return InvalidArgument("{}: the replacement is empty", kDecoder);
    steps_.emplace_back(SpaceStep{space, scheme.empty() ? prefixes : scheme != "never"});
  } else if (type == "Strip") {
    StripStep step;
    PENSTOCK_TRY(step.content, TextMember(part, "content", kDecoder));
    PENSTOCK_TRY(step.start, CountMember(part, "start", kDecoder));
    PENSTOCK_TRY(step.stop, CountMember(part, "stop", kDecoder));
    if (step.content.empty()) return InvalidArgument("{}: Strip has no content", kDecoder);
    steps_.emplace_back(std::move(step));
  } else if (type == "Replace") {
    PENSTOCK_TRY(ReplaceStep step, ReplaceStep::Read(part, kDecoder));
    steps_.emplace_back(std::move(step));
  } else {
    return UnsupportedType(kDecoder, type);
  }
  return {};
}

std::string Decoder::Decode(std::vector<std::string> tokens) const {
  for (const Step& each : steps_) {
    std::visit([&](const auto& step) { Apply(step, tokens); }, each);
  }
  std::string text;
  for (const std::string& token : tokens) {
    if (steps_.empty() && !text.empty()) text += ' ';
    text += token;
  }
  return text;
}

void Decoder::Apply(const ByteLevelStep& /*step*/, std::vector<std::string>& tokens) {
  std::string text;
  for (const std::string& token : tokens) text += BytesOfCharacters(token).value_or(token);
  tokens = {std::move(text)};
}

void Decoder::Apply(const FallbackStep& /*step*/, std::vector<std::string>& tokens) {
  std::vector<std::string> decoded;
  std::string bytes;
  std::string buffer;
  const auto end_bytes = [&] {
    if (ValidUtf8(bytes, buffer).data() == bytes.data()) {
      decoded.push_back(bytes);
    } else {
      for (std::size_t i = 0; i < bytes.size(); ++i) decoded.emplace_back(kBroken);
    }
    bytes.clear();
  };
  for (std::string& token : tokens) {
    if (const auto byte = ByteOfToken(token)) {
      bytes += static_cast<char>(*byte);
      continue;
    }
    if (!bytes.empty()) end_bytes();
    decoded.push_back(std::move(token));
  }
  if (!bytes.empty()) end_bytes();
  tokens = std::move(decoded);
}

void Decoder::Apply(const FuseStep& /*step*/, std::vector<std::string>& tokens) {
  std::string text;
  for (const std::string& token : tokens) text += token;
  tokens = {std::move(text)};
}

void Decoder::Apply(const SpaceStep& step, std::vector<std::string>& tokens) {
  bool strips = step.strips;
  for (std::string& token : tokens) {
    std::string text;
    std::size_t copied = 0;
    for (std::size_t at = 0; (at = token.find(step.space, copied)) != token.npos;) {
      text.append(token, copied, at - copied);
      if (!strips) text += ' ';
      copied = at + step.space.size();
    }
    text.append(token, copied);
    token = std::move(text);
    strips = false;
  }
}

void Decoder::Apply(const StripStep& step, std::vector<std::string>& tokens) {
  for (std::string& token : tokens) {
    std::string_view rest = token;
    for (std::size_t i = 0; i < step.start && rest.starts_with(step.content); ++i) {
      rest.remove_prefix(step.content.size());
    }
    for (std::size_t i = 0; i < step.stop && rest.ends_with(step.content); ++i) {
      rest.remove_suffix(step.content.size());
    }
    token = std::string(rest);
  }
}

void Decoder::Apply(const ReplaceStep& step, std::vector<std::string>& tokens) {
  MatchState state;
  for (std::string& token : tokens) {
    if (auto replaced = step.Apply(token, state)) token = *std::move(replaced);
  }
}

}  // namespace penstock
