// Schedules for tests: catalog schedules of any size, and variants that the catalog lacks.
#pragma once

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "schedule/catalog.h"
#include "schedule/text/text.h"
#include "schedule/validate/validate.h"
#include "tests/results.h"

namespace penstock::testing {

struct Size {
  int ranks, chunks, microbatches;
  std::string Text() const { return fmt::format("p={} v={} m={}", ranks, chunks, microbatches); }
};

inline ScheduleParams ParamsOf(const Size& size) {
  return {.ranks = size.ranks, .chunks = size.chunks, .microbatches = size.microbatches};
}

inline Schedule Make(std::string_view name, const Size& size) {
  auto schedule = Generate(name, ParamsOf(size));
  if (!schedule) ADD_FAILURE() << schedule.error().line();
  return *schedule;
}

// Returns the description of the first fault; an empty string for a valid schedule.
inline std::string FirstFault(const Schedule& schedule) {
  const auto faults = Validate(schedule);
  return faults.empty() ? "" : Describe(schedule, faults.front());
}

// Expects that the CSV of a schedule alone reads as the same schedule.
inline void ExpectRoundTrip(const Schedule& schedule) {
  const auto back = ValueOf(ParseCsv(WriteCsv(schedule)));
  EXPECT_EQ(back.lanes, schedule.lanes);
  EXPECT_EQ(back.placement, schedule.placement);
  EXPECT_EQ(back.microbatches, schedule.microbatches);
  EXPECT_EQ(back.slices, schedule.slices);
  EXPECT_EQ(back.steps, schedule.steps);
  EXPECT_EQ(back.weights, schedule.weights);
  EXPECT_EQ(back.vocabulary, schedule.vocabulary);
  EXPECT_EQ(back.backward, schedule.backward);
}

// Splits every B into adjacent I and W.
inline Schedule SplitBackwards(Schedule schedule) {
  for (Lane& lane : schedule.lanes) {
    Lane split;
    for (const Action& action : lane) {
      if (action.first.op != Op::kBackward) {
        split.push_back(action);
        continue;
      }
      split.push_back(BackwardInput(action.first.stage, action.first.microbatch));
      split.push_back(BackwardWeight(action.first.stage, action.first.microbatch));
    }
    lane = split;
  }
  return schedule;
}

// Pairs adjacent forwards and backwards where the schedule stays valid.
inline Schedule PairWherePossible(Schedule schedule) {
  for (Lane& lane : schedule.lanes) {
    for (std::size_t i = 0; i + 1 < lane.size(); ++i) {
      const Lane before = lane;
      if (!IsCompute(lane[i]) || !IsCompute(lane[i + 1]) || lane[i].is_pair()) continue;
      if ((lane[i].first.op == Op::kForward) == (lane[i + 1].first.op == Op::kForward)) continue;
      lane[i] = Overlap(lane[i], lane[i + 1]);
      lane.erase(lane.begin() + static_cast<std::ptrdiff_t>(i) + 1);
      if (!Validate(schedule).empty()) lane = before;
    }
  }
  return schedule;
}

}  // namespace penstock::testing
