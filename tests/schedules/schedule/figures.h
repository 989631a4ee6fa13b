// Simulates schedules of the catalog.
#pragma once

#include "schedule/search/problem/problem.h"
#include "simulate/simulate.h"
#include "tests/schedules/schedule/make_schedules.h"

namespace penstock::testing {

struct Figures {
  double makespan = 0, peak_memory = 0, span_bubble = 0;
};

inline Costs CostsFor(const Schedule& schedule, const ScheduleParams& params) {
  return CostsOf(params, schedule.placement);
}

inline Figures FiguresOf(std::string_view name, const ScheduleParams& params,
                         OverlapRule overlap = {}) {
  const auto schedule = Generate(name, params);
  if (!schedule) {
    ADD_FAILURE() << schedule.error().line();
    return {};
  }
  EXPECT_EQ(FirstFault(*schedule), "") << name;
  Costs costs = CostsFor(*schedule, params);
  costs.overlap = overlap;
  const auto result = Simulate(*schedule, costs);
  if (!result) {
    ADD_FAILURE() << name << ": " << result.error().line();
    return {};
  }
  return {result->makespan, result->peak_memory, result->span_bubble};
}

inline ScheduleParams Sized(int ranks, int microbatches) {
  return {.ranks = ranks, .microbatches = microbatches};
}

}  // namespace penstock::testing
