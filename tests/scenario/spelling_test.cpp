#include "scenario/spelling.h"

#include <gtest/gtest.h>

namespace penstock {
namespace {

std::string AsOption(std::string_view field) { return "--" + std::string(field); }

Error About(const std::string& parameter, const std::string& message) {
  return {ErrorCode::kInvalidArgument, message, parameter, ""};
}

TEST(Spelling, NamesOptionsOfTheCommandLine) {
  const Scenario scenario;
  EXPECT_EQ(Spell(About("ranks", "0: at least 1"), scenario, AsOption).line(),
            "--ranks 0: at least 1");
  EXPECT_EQ(Spell(About("zero", "1: give `data_parallel`"), scenario, AsOption).line(),
            "--zero 1: give --data_parallel");
  EXPECT_EQ(Spell(About("price step", "-1: at least 0"), scenario, AsOption).line(),
            "--price step -1: at least 0");
  EXPECT_EQ(Spell(About("", "a ` alone"), scenario, AsOption).line(), "a ` alone");
}

TEST(Spelling, NamesKeysWithTheirPlaceWhereAFileGaveThem) {
  Scenario scenario;
  scenario.places = {{"zero", "a.yaml: line 3"}, {"schedule", "a.yaml: line 1"}};
  EXPECT_EQ(Spell(About("zero", "1: give `data_parallel`"), scenario, AsOption).line(),
            "a.yaml: line 3: zero 1: give --data_parallel");
  EXPECT_EQ(Spell(About("ranks", "1: not with `zero`"), scenario, AsOption).line(),
            "a.yaml: line 3: --ranks 1: not with zero");
  EXPECT_EQ(Spell(About("", "no such schedule"), scenario, AsOption, "schedule").line(),
            "a.yaml: line 1: no such schedule");
  const Error placed = In("a.yaml: line 7", About("forward", "x"));
  EXPECT_EQ(Spell(placed, scenario, AsOption).line(), placed.line());
}

}  // namespace
}  // namespace penstock
