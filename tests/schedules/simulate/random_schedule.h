// Random valid schedules: any placement, any order that can run, split and whole backwards, pairs,
// and communication actions wherever they are allowed.
#pragma once

#include <random>
#include <string_view>

#include "schedule/costs.h"
#include "schedule/schedule.h"
#include "schedule/text/text.h"

namespace penstock {

inline Schedule Read(std::string_view csv, const CsvOptions& options = {}) {
  return ParseCsv(csv, options).value();
}

inline Costs Uniform(const Schedule& schedule, double comm = 0) {
  return Costs::Uniform(schedule.placement, schedule.slices, 1, 1, 1, comm);
}

struct RandomShape {
  Placement placement;
  int microbatches = 1;
  int slices = 1;
  bool pairs = false;          // overlap some forwards with backwards
  bool communication = false;  // add SEND and RECV
};

// Repeatedly appends one of all actions that may run next, so that the lanes cannot deadlock.
Schedule RandomSchedule(const RandomShape& shape, std::mt19937& random);

// Draws a placement with at least one stage per rank, in one or two chains.
Placement RandomPlacement(std::mt19937& random);

// Draws a placement and 1 to `most` microbatches per chain.
inline RandomShape DrawShape(unsigned most, std::mt19937& random) {
  RandomShape shape{.placement = RandomPlacement(random)};
  shape.microbatches = static_cast<int>(1 + random() % most) * shape.placement.replicas();
  return shape;
}

// Draws uneven times, some of them 0, and one amount of activation for all stages.
Costs RandomCosts(const Placement& placement, std::mt19937& random);

}  // namespace penstock
