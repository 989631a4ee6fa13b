// A plan, with what the formats of frameworks need of it.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model_spec/layer_range.h"
#include "plan/search/framework_limits.h"
#include "plan/search/training_plan.h"
#include "schedule/mesh.h"
#include "schedule/schedule.h"

namespace penstock {

struct PlanJob {
  Scenario scenario;
  JobDivision division;
  std::string algorithm;  // of the schedule
  int chunks = 1;
  ModelOnCluster model;
  Schedule schedule;                                 // of one replica
  std::vector<LayerRange> stages;                    // of the model, in its order
  Result<ModelConfig> engine_model = ModelConfig();  // EngineModelOf

  const ModelShape& shape() const { return model.shape; }
  // As the scenario asks: the engine may have to leave tokens whole where other frameworks pad.
  bool sequence_parallel() const { return scenario.sequence_parallel.value_or(true); }
  DividedModel divided() const {
    return {.division = division,
            .chunks = chunks,
            .algorithm = algorithm,
            .shape = model.shape,
            .precision = model.batch.precision,
            .engine_model = engine_model,
            .sequence_parallel = sequence_parallel(),
            .sites = scenario.sites.value_or(1)};
  }
  std::int64_t global_batch() const {
    return std::int64_t{division.data} * division.micro_batch * division.microbatches;
  }
};

// Errors: as BuildOne.
Result<PlanJob> JobOf(const TrainingPlan& plan);

// Refuses settings of the user that are neither dimensions of a plan nor sizes of the model, except
// for settings that only say what the job costs or that the format expresses. `framework` is its
// name in errors.
Status RefuseOtherSettings(const PlanJob& job, std::string_view framework,
                           std::initializer_list<std::string_view> expressed);

// Whether sites divide the replicas of pipelines that have several ranks.
bool SitesDivideReplicas(const PlanJob& job);

// Refuses sites, each with consecutive devices, that do not divide the outermost axis of the
// framework's order of devices.
Status CheckSites(const PlanJob& job, std::string_view framework, const AxisOrder& order);

}  // namespace penstock
