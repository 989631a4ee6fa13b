// One way to train a model on a cluster, with what it costs.
#pragma once

#include <string>
#include <vector>

#include "plan/search/bounds.h"
#include "plan/search/division.h"
#include "scenario/price/step_estimate.h"
#include "scenario/scenario.h"
#include "schedule/costs.h"
#include "schedule/placement.h"

namespace penstock {

struct TrainingPlan {
  std::string framework;  // that is to run it; empty: any
  JobDivision division;
  std::string schedule;  // the algorithm's name
  int chunks = 1, slices = 1;
  Placement placement = {};
  std::vector<int> layers = {};  // of each stage; empty if the user fixed a layout
  Scenario scenario;             // complete: `penstock simulate` of it gives these figures
  StepEstimate estimate;
  std::vector<double> rank_busy = {};  // seconds, by pipeline rank
  std::vector<double> memory = {};     // bytes of a device, by pipeline rank
  TimeParts parts = {};
  OverlapRule overlap = {};  // of pairs, which may be another schedule's
  double lower_bound = 0;  // seconds of a step, of every schedule with this division and placement

  // Whose kernels the price is of.
  std::string implementation() const { return scenario.implementation.value_or("penstock"); }
  double step_time() const { return estimate.step_time; }
  double bytes() const { return estimate.device_bytes(); }
  double busy() const;       // seconds of the rank that computes most
  double mean_busy() const;  // seconds, of all ranks
  double bubble() const { return 1 - busy() / estimate.makespan; }
};

// Returns the plans, the fastest first, that no other one dominates: that is as fast, needs as
// little memory, and is better in one of both.
std::vector<TrainingPlan> FrontOf(std::vector<TrainingPlan> plans);

// Says why `plan` loses against `best`: the parts of its step that are longer, the largest first.
std::string WhyNot(const TrainingPlan& plan, const TrainingPlan& best);

}  // namespace penstock
