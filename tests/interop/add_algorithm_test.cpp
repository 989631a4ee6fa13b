// The catalog finds an algorithm that the embedding program registers, like the built-in ones.
#include <gtest/gtest.h>

#include "schedule/catalog.h"
#include "schedule/validate/validate.h"
#include "tests/results.h"

namespace penstock {
namespace {

Algorithm Alternating(std::string_view name) {
  Algorithm algorithm;
  algorithm.name = name;
  algorithm.generate = [](const ScheduleParams& params) {
    Schedule schedule;
    schedule.placement = Placement::Linear(params.ranks);
    schedule.microbatches = params.microbatches;
    for (int rank = 0; rank < params.ranks; ++rank) {
      Lane& lane = schedule.lanes.emplace_back();
      for (int n = 0; n < params.microbatches; ++n) {
        lane.push_back(Forward(rank, n));
        lane.push_back(Backward(rank, n));
      }
    }
    return schedule;
  };
  return algorithm;
}

TEST(AddAlgorithm, IsFoundAndChecked) {
  const std::size_t ours = Catalog().size();
  Algorithm algorithm = Alternating("alternating");
  algorithm.aliases = {"one-by-one"};
  ASSERT_TRUE(AddAlgorithm(algorithm));
  EXPECT_EQ(Catalog().size(), ours);
  const auto found = ValueOf(FindAlgorithm("One_By_One"));
  EXPECT_EQ(found->name, "alternating");
  EXPECT_FALSE(found->closed_form({}).makespan);

  ScheduleParams params = {.ranks = 3};
  const auto schedule = ValueOf(Generate("alternating", params));
  EXPECT_EQ(schedule.algorithm, "alternating");
  EXPECT_TRUE(Validate(schedule).empty());
  params.chunks = 2;
  EXPECT_FALSE(Generate("alternating", params)) << "its parameters are checked like ours";
}

TEST(AddAlgorithm, RefusesInvalidAndDuplicateAlgorithms) {
  EXPECT_FALSE(AddAlgorithm(Alternating("")));
  EXPECT_FALSE(AddAlgorithm(Alternating("1F1B"))) << "taken by ours";
  ASSERT_TRUE(AddAlgorithm(Alternating("once")));
  EXPECT_FALSE(AddAlgorithm(Alternating("once")));
  Algorithm alias = Alternating("twice");
  alias.aliases = {"zero_bubble"};
  EXPECT_FALSE(AddAlgorithm(alias));
  Algorithm empty = Alternating("empty");
  empty.generate = nullptr;
  EXPECT_FALSE(AddAlgorithm(empty));
  EXPECT_TRUE(Refused(FindAlgorithm("never"), "once"));
}

}  // namespace
}  // namespace penstock
