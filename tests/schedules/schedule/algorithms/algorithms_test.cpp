// Every algorithm of the catalog at many sizes returns a valid schedule with the stated properties.
#include <gtest/gtest.h>

#include <algorithm>

#include "schedule/passes/passes.h"
#include "tests/cases.h"
#include "tests/schedules/schedule/make_schedules.h"

namespace penstock::testing {
namespace {

// Generates every size of the grid that the algorithm accepts. A refusal names the algorithm.
template <class Visit>
void ForEachSize(const Algorithm& algorithm, Visit visit) {
  int accepted = 0;
  for (int ranks = 1; ranks <= 4 + Cases(5); ++ranks) {
    for (int chunks = 0; chunks <= 4; ++chunks) {
      if (chunks == algorithm.supported.default_chunks) continue;  // the same as 0
      for (const int microbatches : {1, 2, 3, 4, 5, 7, 8, 9, 12, 16, 17, 23, 32}) {
        const Size size = {ranks, chunks, microbatches};
        const auto schedule = Generate(algorithm.name, ParamsOf(size));
        if (!schedule) {
          EXPECT_NE(schedule.error().line().find(algorithm.name), std::string::npos);
          continue;
        }
        ++accepted;
        visit(size, *schedule);
      }
    }
  }
  EXPECT_GT(accepted, 0) << algorithm.name;
}

TEST(Algorithms, ValidBeforeAndAfterLowering) {
  for (const Algorithm& algorithm : Catalog()) {
    ForEachSize(algorithm, [&](const Size& size, const Schedule& schedule) {
      const std::string where = fmt::format("{} {}", algorithm.name, size.Text());
      EXPECT_EQ(FirstFault(schedule), "") << where;
      EXPECT_EQ(FirstFault(AddCommunication(schedule)), "") << where;
      EXPECT_EQ(schedule.algorithm, algorithm.name);
      EXPECT_EQ(schedule.ranks(), size.ranks);
      EXPECT_EQ(schedule.microbatches, size.microbatches);
      for (const Lane& lane : schedule.lanes) {
        for (const Action& action : lane) {
          ASSERT_TRUE(IsCompute(action) || action.first.op == Op::kStep) << ToText(action);
        }
      }
    });
  }
}

TEST(Algorithms, MemoryIsReservedExactly) {
  for (const std::string_view name : {"naive", "gpipe", "1f1b", "interleaved"}) {
    const Schedule schedule = Make(name, {4, 0, 11});
    for (const Lane& lane : schedule.lanes) EXPECT_EQ(lane.size(), lane.capacity()) << name;
    for (const Lane& lane : AddCommunication(schedule).lanes) {
      EXPECT_EQ(lane.size(), lane.capacity()) << name << " lowered";
    }
  }
}

TEST(Algorithms, LanesMatchThePapers) {
  EXPECT_EQ(WriteCsv(Make("1f1b", {4, 0, 6})),
            "0F0,0F1,0F2,0F3,0B0,0F4,0B1,0F5,0B2,0B3,0B4,0B5\n"
            "1F0,1F1,1F2,1B0,1F3,1B1,1F4,1B2,1F5,1B3,1B4,1B5\n"
            "2F0,2F1,2B0,2F2,2B1,2F3,2B2,2F4,2B3,2F5,2B4,2B5\n"
            "3F0,3B0,3F1,3B1,3F2,3B2,3F3,3B3,3F4,3B4,3F5,3B5\n");
  EXPECT_EQ(WriteCsv(Make("gpipe", {2, 0, 2})), "0F0,0F1,0B1,0B0\n1F0,1F1,1B1,1B0\n");
  EXPECT_EQ(WriteCsv(Make("naive", {2, 0, 2})), "0F0,0B0,0F1,0B1\n1F0,1B0,1F1,1B1\n");
  EXPECT_EQ(WriteCsv(Make("interleaved", {2, 2, 4})),
            "0F0,0F1,2F0,2F1,0F2,2B0,0F3,2B1,2F2,0B0,2F3,0B1,2B2,2B3,0B2,0B3\n"
            "1F0,1F1,3F0,3B0,3F1,3B1,1F2,1B0,1F3,1B1,3F2,3B2,3F3,3B3,1B2,1B3\n");
}

TEST(Algorithms, NamesAndAliasesAreUnique) {
  std::vector<std::string_view> names;
  for (const Algorithm& algorithm : Catalog()) {
    names.push_back(algorithm.name);
    names.insert(names.end(), algorithm.aliases.begin(), algorithm.aliases.end());
    EXPECT_FALSE(algorithm.summary.empty() || algorithm.source.empty()) << algorithm.name;
    EXPECT_EQ(*FindAlgorithm(algorithm.name), &algorithm);
  }
  std::sort(names.begin(), names.end());
  EXPECT_EQ(std::adjacent_find(names.begin(), names.end()), names.end());
}

TEST(Algorithms, DropUnsupportedKeepsOnlySupportedParameters) {
  ScheduleParams params = {.chunks = 2,
                           .memory_limit = 7,
                           .group = 4,
                           .slices = 3,
                           .waves = 2,
                           .steps = 5,
                           .split = true};
  for (const Algorithm& algorithm : Catalog()) {
    const SupportedParameters& supported = algorithm.supported;
    const ScheduleParams kept = DropUnsupported(algorithm, params);
    EXPECT_EQ(kept.group, supported.group ? 4 : 0) << algorithm.name;
    EXPECT_EQ(kept.slices, supported.slices ? 3 : 1) << algorithm.name;
    EXPECT_EQ(kept.waves, supported.waves ? 2 : 0) << algorithm.name;
    EXPECT_EQ(kept.steps, supported.steps ? 5 : 1) << algorithm.name;
    EXPECT_EQ(kept.split, supported.split) << algorithm.name;
    EXPECT_EQ(kept.memory_limit.has_value(), supported.memory_limit) << algorithm.name;
    // The parameters that are left are accepted, except by the algorithm's own check.
    Algorithm unchecked = algorithm;
    unchecked.check = nullptr;
    const auto checked = CheckParams(unchecked, kept);
    EXPECT_TRUE(checked) << algorithm.name << ": " << checked.error().line();
  }
}

}  // namespace
}  // namespace penstock::testing
