// utf8, newer_characters, normal_form and oniguruma.
#include <gtest/gtest.h>

#include "tokens/text/newer_characters.h"
#include "tokens/text/normal_form.h"
#include "tokens/text/oniguruma.h"
#include "tokens/text/pattern.h"
#include "tokens/text/utf8.h"

namespace penstock {
namespace {

std::string Valid(std::string_view text) {
  std::string buffer;
  return std::string(ValidUtf8(text, buffer));
}

TEST(Utf8Test, ReplacesBrokenCharacters) {
  EXPECT_EQ(Valid("plain é 漢 😀"), "plain é 漢 😀");
  EXPECT_EQ(Valid("a\xFFz"), "a�z");
  EXPECT_EQ(Valid("\xE2\x82"), "�");        // ends early
  EXPECT_EQ(Valid("\xED\xA0\x80"), "���");  // a surrogate
  EXPECT_EQ(Valid("12345678\xC3(long"), "12345678�(long");
}

TEST(Utf8Test, KeepsTheMemoryOfValidText) {
  const std::string text = "valid é";
  std::string buffer;
  EXPECT_EQ(ValidUtf8(text, buffer).data(), text.data());
}

TEST(StandInsTest, KeepPositions) {
  const std::string text = "a \U00031350 \u0897 \u180E z";
  std::string buffer;
  const std::string_view shown = WithStandIns(text, buffer);
  EXPECT_NE(shown, text);
  EXPECT_EQ(shown.size(), text.size());
  EXPECT_EQ(WithStandIns("old é 漢 😀", buffer), "old é 漢 😀");
}

std::string Normalized(std::string_view text, NormalForm form) {
  std::string to;
  AppendNormalized(text, form, to);
  return to;
}

TEST(NormalFormTest, Normalizes) {
  EXPECT_EQ(Normalized("e\u0301", NormalForm::kNfc), "\u00e9");
  EXPECT_EQ(Normalized("\u00e9", NormalForm::kNfd), "e\u0301");
  EXPECT_EQ(Normalized("\ufb01 \u2460", NormalForm::kNfkc), "fi 1");
  EXPECT_EQ(Normalized("\u1100\u1161", NormalForm::kNfc), "\uac00");
}

TEST(NormalFormTest, LeavesNewerCharactersAlone) {
  EXPECT_EQ(Normalized("\u32ff", NormalForm::kNfkc), "\u32ff");  // Unicode 12.1
  // U+08D3 is of Unicode 11 and would be put before U+0301.
  EXPECT_EQ(Normalized("a\u0301\u08d3", NormalForm::kNfd), "a\u0301\u08d3");
}

TEST(OnigurumaTest, Translates) {
  EXPECT_EQ(ToPcre2(R"(\p{N}{1,3}+)").value(), R"((?:\p{N}{1,3})+)");
  EXPECT_EQ(ToPcre2(R"((ab){2}+)").value(), R"((?:(ab){2})+)");
  EXPECT_EQ(ToPcre2(R"(x{,2})").value(), "x{0,2}");
  EXPECT_EQ(ToPcre2(R"([\h]\v)").value(), R"([0-9A-Fa-f]\x{b})");
  EXPECT_EQ(ToPcre2(R"(\p{Han}\p{L})").value(), R"(\p{sc:Han}\p{L})");
}

TEST(OnigurumaTest, RefusesWhatReadsDifferently) {
  for (const std::string_view expression :
       {"[a&&b]", "[a[b]]", "a(?i)b", R"(\b)", R"(\G)", "(?<name>a)", "[a", "a\\"}) {
    const auto translated = ToPcre2(expression);
    EXPECT_FALSE(translated) << expression << ": " << *translated;
  }
}

TEST(PatternTest, SlowExpressionsFail) {
  const Pattern pattern = Pattern::Regex("(a+a+)+b").value();
  const std::string text = std::string(200, 'a') + "cb";
  MatchState state;
  std::vector<TextSpan> matches;
  EXPECT_FALSE(pattern.FindAll(text, {0, text.size()}, state, matches));
}

TEST(PatternTest, MatchesPartsAsWholes) {
  const Pattern pattern = Pattern::Regex(R"(\s+(?!\S)|\s+)").value();
  MatchState state;
  std::vector<TextSpan> matches;
  ASSERT_TRUE(pattern.FindAll("x   y", {1, 4}, state, matches));
  ASSERT_EQ(matches.size(), 1U);  // not two: the part ends before the y
  EXPECT_EQ(matches[0].end, 4U);
}

}  // namespace
}  // namespace penstock
