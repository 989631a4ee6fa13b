#include "base/text/yaml_map.h"

#include <gtest/gtest.h>

#include "tests/results.h"

namespace penstock {
namespace {

Result<YamlMap> Parse(const std::string& text) {
  PENSTOCK_TRY(const YAML::Node root, ParseYaml(text));
  return YamlMap::Of(root, "the map");
}

std::string ErrorOf(const std::string& text) { return LineOf(Parse(text)); }

TEST(YamlMap, ReadsValuesByKey) {
  const auto map = Parse("a: 3\nb: 0.5\nc: word\nd: [1, 2]\ne: true\n");
  ASSERT_TRUE(map);
  EXPECT_EQ(**map->Int("a"), 3);
  EXPECT_EQ(**map->Number("b"), 0.5);
  EXPECT_EQ(**map->Text("c"), "word");
  EXPECT_EQ(**map->Numbers("d"), (std::vector<double>{1, 2}));
  EXPECT_EQ(**map->Numbers("b"), std::vector<double>{0.5});
  EXPECT_TRUE(**map->Bool("e"));
  EXPECT_FALSE(map->Int("f")->has_value());
}

TEST(YamlMap, ErrorsNameLineAndKey) {
  const auto map = Parse("# comment\na: 010\nb: .inf\nc: []\nd: {}\ne: ''\n");
  ASSERT_TRUE(map);
  EXPECT_TRUE(map->Int("a").error().line().starts_with("line 2: a: '010'"));
  EXPECT_TRUE(map->Number("b").error().line().starts_with("line 3: b: "));
  EXPECT_TRUE(map->Texts("c").error().line().starts_with("line 4: c: "));
  EXPECT_TRUE(map->Bool("d").error().line().starts_with("line 5: d: "));
  EXPECT_TRUE(map->Text("e").error().line().starts_with("line 6: e: "));
}

TEST(YamlMap, RefusesDuplicateEmptyAndUnknownKeys) {
  EXPECT_EQ(ErrorOf("a: 1\nb: 2\na: 3\n"), "line 3: 'a' is given twice; give it once");
  EXPECT_TRUE(ErrorOf("a: 1\nb:\n").starts_with("line 2: 'b' has no value"));
  EXPECT_EQ(ErrorOf("a: 1\n---\nb: 2\n"),
            "line 2: a second YAML document starts here; keep one of them");
  EXPECT_EQ(ErrorOf("\n, a: 1\n"), "line 2: a value cannot start here");
  EXPECT_NE(ErrorOf("[a]: 1\n"), "");
  EXPECT_NE(ErrorOf("- a\n"), "");
  EXPECT_NE(ErrorOf(""), "");
  EXPECT_NE(ErrorOf("a: [\n"), "");
  const auto map = Parse("ranks: 1\nmicrobatchs: 2\n");
  ASSERT_TRUE(map);
  EXPECT_TRUE(map->RequireKnown({"ranks", "microbatchs"}));
  EXPECT_EQ(map->RequireKnown({"ranks", "microbatches"}).error().line(),
            "line 2: the map has an unknown key 'microbatchs'; did you mean 'microbatches'?");
}

// A tag that names a type of a program asks for something that nobody does.
TEST(YamlMap, RefusesTagsOfPrograms) {
  for (const char* text : {"a: !!python/object:x {}\n", "a: !!python/tuple [1]\n", "a: !mine 1\n",
                           "a: [1, !!binary x]\n", "!!python/object:x {a: 1}\n", "!mine a: 1\n",
                           "a: 1\nb: &c !x 1\n"}) {
    const auto read = ParseYaml(text);
    ASSERT_FALSE(read) << text;
    EXPECT_TRUE(Contains(read.error().line(), "has the tag")) << read.error().line();
  }
  EXPECT_TRUE(Contains(ParseYaml("a: 1\nb: !x 1\n").error().line(), "line 2: "));
  for (const char* text :
       {"a: !!str 1\n", "a: !!int '1'\n", "a: ! 1\n", "a: !!seq [1]\n", "!!map {a: 1}\n"}) {
    EXPECT_TRUE(ParseYaml(text)) << text;
  }
}

TEST(YamlMap, FormerNamesOfKeysKeepWorking) {
  const auto map = Parse("cuts: 4\n");
  ASSERT_TRUE(map);
  EXPECT_TRUE(map->RequireKnown({"slices"}));
  EXPECT_EQ(map->Int("slices").value(), 4);
  EXPECT_EQ(map->Keys(), std::vector<std::string>{"slices"});
  EXPECT_EQ(ErrorOf("slices: 4\ncuts: 4\n"), "line 2: 'slices' is given twice; give it once");
}

TEST(YamlMap, NullsMayCountAsMissing) {
  const auto root = ParseYaml("a:\nb: 1\n");
  ASSERT_TRUE(root);
  const auto map = YamlMap::Of(*root, "the map", YamlMap::Null::kMissing);
  ASSERT_TRUE(map);
  EXPECT_FALSE(map->Has("a"));
  EXPECT_TRUE(map->Has("b"));
}

}  // namespace
}  // namespace penstock
