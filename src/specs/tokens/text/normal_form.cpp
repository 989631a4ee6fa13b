#include "tokens/text/normal_form.h"

#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>

#include "tokens/text/newer_characters.h"
#include "tokens/text/utf8.h"

namespace penstock {
namespace {

// Smaller bytes begin characters before U+0300. NFC leaves these unchanged and never combines one
// with the character before it.
constexpr unsigned char kFirstCombiningLead = 0xCC;

const icu::Normalizer2& NormalizerOf(NormalForm form) {
  UErrorCode error = U_ZERO_ERROR;
  const icu::Normalizer2* found = nullptr;
  switch (form) {
    case NormalForm::kNfc:
      found = icu::Normalizer2::getNFCInstance(error);
      break;
    case NormalForm::kNfd:
      found = icu::Normalizer2::getNFDInstance(error);
      break;
    case NormalForm::kNfkc:
      found = icu::Normalizer2::getNFKCInstance(error);
      break;
    case NormalForm::kNfkd:
      found = icu::Normalizer2::getNFKDInstance(error);
      break;
  }
  PENSTOCK_CHECK(U_SUCCESS(error) != 0, "ICU has no data");
  return *found;
}

void AppendSegment(std::string_view text, const icu::Normalizer2& normalizer, std::string& to) {
  if (text.empty()) return;
  icu::StringByteSink<std::string> sink(&to);
  UErrorCode error = U_ZERO_ERROR;
  normalizer.normalizeUTF8(0, icu::StringPiece(text.data(), static_cast<std::int32_t>(text.size())),
                           sink, nullptr, error);
  PENSTOCK_CHECK(U_SUCCESS(error) != 0, "ICU could not normalize");
}

}  // namespace

// A newer character neither combines with its neighbors nor is reordered, so that the text before
// and after it can be normalized separately.
void AppendNormalized(std::string_view text, NormalForm form, std::string& to) {
  const unsigned char least = form == NormalForm::kNfc ? kFirstCombiningLead : 0x80;
  if (FindByteFrom(text, 0, least) == text.size()) {
    to += text;
    return;
  }
  const icu::Normalizer2& normalizer = NormalizerOf(form);
  std::size_t begin = 0;
  for (std::size_t at = 0; (at = FindByteFrom(text, at, kFirstCombiningLead)) < text.size();) {
    const std::size_t here = at;
    if (!IsNewToNormalization(NextCodePoint(text, at))) continue;
    AppendSegment(text.substr(begin, here - begin), normalizer, to);
    to.append(text, here, at - here);
    begin = at;
  }
  AppendSegment(text.substr(begin), normalizer, to);
}

}  // namespace penstock
