// Draws parameters, costs and passes for tests. `random` is a std::mt19937, or the bytes of a
// fuzzer with its interface.
#pragma once

#include <string>
#include <vector>

#include "schedule/catalog.h"

namespace penstock::testing {

template <class Random>
int Draw(Random& random, int low, int high) {
  return low + static_cast<int>(random() % static_cast<unsigned>(high - low + 1));
}

// Draws parameters that the algorithm may or may not accept: small, so that many can be tried.
template <class Random>
ScheduleParams DrawParams(const Algorithm& algorithm, Random& random) {
  ScheduleParams params = {.ranks = Draw(random, 1, 6)};
  params.chunks = Draw(random, 0, 1) == 0 ? 0 : Draw(random, 1, 3);
  params.microbatches = Draw(random, 1, 14);
  if (algorithm.supported.slices) params.slices = Draw(random, 1, 3);
  if (algorithm.supported.steps) params.steps = Draw(random, 1, 3);
  if (algorithm.supported.split) params.split = Draw(random, 0, 1) == 1;
  if (algorithm.supported.group && Draw(random, 0, 2) == 0) params.group = Draw(random, 1, 6);
  if (algorithm.supported.waves) params.waves = Draw(random, 0, 2);
  if (algorithm.supported.memory_limit && Draw(random, 0, 1) == 1) {
    params.memory_limit = Draw(random, 1, 8);
  }
  if (Draw(random, 0, 1) == 1) {
    params.forward = Draw(random, 1, 4);
    params.backward_input = Draw(random, 1, 4);
    params.backward_weight = Draw(random, 1, 4);
    params.comm = 0.25 * Draw(random, 0, 4);
  }
  return params;
}

// Draws stages of a model with so many that are frozen or train only adapters; perhaps none.
template <class Random>
Untrained DrawUntrained(int stages, Random& random) {
  Untrained untrained;
  const int frozen_up_to = Draw(random, 0, stages);  // as encoders are
  const int others = Draw(random, 0, 2);
  for (int stage = 0; stage < stages; ++stage) {
    if (stage < frozen_up_to || (others > 0 && Draw(random, 0, 3) == 0)) {
      untrained.frozen.push_back(stage);
    } else if (others == 2 && Draw(random, 0, 1) == 0) {
      untrained.adapters.push_back(stage);
    }
  }
  return untrained;
}

// Draws costs with which every pass can change a schedule.
template <class Random>
Costs DrawPassCosts(const Schedule& schedule, Random& random) {
  Costs costs = Costs::Uniform(schedule.placement, schedule.slices, Draw(random, 1, 3),
                               Draw(random, 1, 3), Draw(random, 1, 3), 0.25 * Draw(random, 0, 2));
  for (StageCosts& stage : costs.stages) {
    stage.activation_after_i = stage.activation * 0.25 * Draw(random, 0, 4);
    stage.input_activation = stage.activation * 0.25;
    stage.step = Draw(random, 0, 1);
    stage.unshard = 0.25 * Draw(random, 0, 3);
    stage.reduce = 0.25 * Draw(random, 0, 3);
    stage.gathered = 0.25 * Draw(random, 0, 2);
    stage.vocabulary_input = 0.5;
    stage.vocabulary_weight = stage.softmax = 0.25;
    stage.embed = stage.embed_gradient = 0.125;
  }
  costs.offload = 0.5 * Draw(random, 0, 4);
  costs.reload = 0.5 * Draw(random, 0, 4);
  return costs;
}

// Draws "NAME" or "NAME=ARGUMENTS". Only passes with a memory limit may refuse a schedule.
template <class Random>
std::string DrawPass(Random& random) {
  const auto either = [&](const char* one, const char* other) {
    return std::string(Draw(random, 0, 1) == 0 ? one : other);
  };
  switch (Draw(random, 0, 12)) {
    case 0:
      return "communication";
    case 1:
      return "sharding=" + std::to_string(Draw(random, 0, 4)) + either("", ":keep");
    case 2:
      return "split-backward=" + std::to_string(Draw(random, 0, 6));
    case 3:
      return "split-backward=rank";
    case 4:
      return either("merge-backward", "merge-backward=adjacent");
    case 5:
      return either("overlap", "overlap=all");
    case 6:
      return either("recompute", "offload");
    case 7:
      return "recompute=" + std::to_string(Draw(random, 1, 5));
    case 8:
      return "offload=" + std::to_string(Draw(random, 1, 5));
    case 9:
      return either("reduce-grad", "reduce-grad=defer");
    case 10:
      return "wait-send=" + std::to_string(Draw(random, 1, 4));
    case 11:
      return either("wait-send", "sharding=rank:2");
    default:
      return either("optimizer", "optimizer=post-validation");
  }
}

template <class Random>
std::vector<std::string> DrawPasses(int count, Random& random) {
  std::vector<std::string> passes;
  for (int i = 0; i < count; ++i) passes.push_back(DrawPass(random));
  return passes;
}

}  // namespace penstock::testing
