#include "plan/request/plan_request.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <tuple>

#include "base/text/quote.h"
#include "base/units.h"
#include "cost_model/implementation.h"
#include "cost_model/request/read_name.h"
#include "plan/search/framework.h"
#include "scenario/fields.h"
#include "scenario/price/params.h"
#include "scenario/price/read_file.h"
#include "scenario/price/stage_costs.h"
#include "schedule/cost_files/layer_costs.h"

namespace penstock {
namespace {

Status RefuseCosts(const PlanRequest& request) {
  const Scenario& scenario = request.scenario;
  for (const auto& [field, given] : {std::pair("cost", scenario.cost.has_value()),
                                     {"comm", scenario.comm.has_value()},
                                     {"objective", scenario.objective.has_value()},
                                     {"costs", request.costs.has_value()}}) {
    if (given) return InvalidParameter(field, "has no effect with `model`, which has costs");
  }
  return {};
}

// Refuses what describes how a model is trained.
Status RefuseTraining(const PlanRequest& request) {
  for (const auto& [parameter, given] :
       {std::pair("global_batch", request.global_batch.has_value()),
        {"schedule", !request.schedules.empty()},
        {"exclude", !request.excluded.empty()},
        {"precisions", !request.precisions.empty()},
        {"samples", request.samples.has_value()},
        {"tokens", request.tokens.has_value()},
        {"price_per_hour", request.price_per_hour.has_value()},
        {"seed", request.seed.has_value()},
        {"uncertainty", !request.uncertainty.empty()}}) {
    if (given) return InvalidParameter(parameter, "has no effect without `model`; give one");
  }
  for (const ScenarioField& field : ScenarioFields()) {
    if (field.group == FieldGroup::kModel && IsGiven(field, request.scenario)) {
      return InvalidParameter(field.name, "has no effect without `model`; give one");
    }
  }
  return {};
}

Status CheckNames(const PlanRequest& request) {
  for (const std::string& name : request.excluded) PENSTOCK_TRY_STATUS(FindAlgorithm(name));
  for (const std::string& name : request.schedules) {
    PENSTOCK_TRY(const Algorithm* algorithm, FindAlgorithm(name));
    if (algorithm->supported.steps) {
      return InvalidParameter("schedule",
                              "{}: its microbatches have weights of different ages; plans keep "
                              "them in step",
                              name);
    }
    if (std::ranges::find(request.excluded, name) == request.excluded.end()) continue;
    return InvalidParameter("exclude", "{}: `schedule` allows it; leave one of the two out", name);
  }
  return {};
}

// What only some frameworks do. The engine trains all weights and keeps its states in fp32.
Status CheckStates(const Framework& framework, const Scenario& scenario) {
  if (framework.name != kEngineFramework) return {};
  for (const auto& [field, given] : {std::pair("lora", scenario.lora.value_or(false)),
                                     {"optimizer_states", scenario.optimizer_states.has_value()},
                                     {"offloaded_states", scenario.offloaded_states.has_value()}}) {
    if (given) return InvalidParameter(field, ": the engine has no such training; give `for`");
  }
  return {};
}

// A framework's plans have the price of its kernels.
Status SetImplementation(const Framework& framework, Scenario& scenario) {
  const auto& names = framework.implementations;
  if (!scenario.implementation) scenario.implementation = std::string(names.front());
  if (std::ranges::find(names, *scenario.implementation) != names.end()) return {};
  return InvalidParameter("implementation", "{}: is no price of what {} runs; give {}",
                          *scenario.implementation, framework.name, fmt::join(names, " or "));
}

Status Restrict(const Framework& framework, PlanQuestion& question) {
  if (question.schedules.empty()) {
    question.schedules = framework.usual.empty() ? framework.schedules : framework.usual;
  }
  for (const std::string& name : question.schedules) {
    if (framework.schedules.empty() ||
        std::ranges::find(framework.schedules, name) != framework.schedules.end()) {
      continue;
    }
    return InvalidParameter("schedule", "{}: {} does not run it", name, framework.name);
  }
  question.framework = framework;
  Scenario& scenario = question.scenario;
  PENSTOCK_TRY_STATUS(SetImplementation(framework, scenario));
  PENSTOCK_TRY_STATUS(CheckStates(framework, scenario));
  for (const auto& [field, given, most] :
       {std::tuple("tensor", scenario.tensor, framework.most_tensor),
        {"context", scenario.context, framework.most_context},
        {"zero", scenario.zero, framework.most_zero == 3 ? 0 : framework.most_zero}}) {
    if (given && most > 0 && *given > most) {
      return InvalidParameter(field, "{}: {} has at most {}", *given, framework.name, most);
    }
  }
  return {};
}

// Returns the framework that is asked for: by its name, by its implementation, or the engine.
Result<Framework> AskedFramework(const PlanRequest& request) {
  if (request.framework) return Of("for", FindFramework(*request.framework));
  if (!request.scenario.implementation) return FindFramework(kEngineFramework);
  PENSTOCK_TRY(const Implementation* implementation,
               Of("implementation", FindImplementation(*request.scenario.implementation)));
  return FrameworkOf(implementation->name);
}

// Fields of a file of costs that a search of schedules heeds, and the unit that it leaves alone.
constexpr std::string_view kHeeded[] = {"layer_costs",   "comm",      "overlap",  "time_unit",
                                        "message_bytes", "bandwidth", "topology", "memory_limit"};

// Sets the fields that the scenario leaves open from a file of costs.
Status ReadCosts(const std::string& path, Scenario& scenario) {
  if (scenario.cost) {
    return InvalidParameter("costs", "has no effect with `cost`; leave one of them out");
  }
  const Scenario given = scenario;
  PENSTOCK_TRY_STATUS(ReadScenarioFile(path, {}, scenario));
  if (!scenario.layer_costs) {
    return InvalidParameter(
        "costs", "{}: its costs fit no other number of stages; give layer_costs", Quote(path));
  }
  for (const ScenarioField& field : ScenarioFields()) {
    const bool is_price = field.group == FieldGroup::kCosts || field.group == FieldGroup::kPasses;
    if (!is_price || IsGiven(field, given) || !IsGiven(field, scenario)) continue;
    if (std::ranges::find(kHeeded, field.name) != std::end(kHeeded)) continue;
    return InvalidParameter("costs", "{}: plans do not heed its {}; leave it out", Quote(path),
                            field.name);
  }
  return {};
}

// Has the question priced by layers, divided among the stages of each placement. Schedules that
// follow a rule are made for the mean times of a rank.
Status SetLayerCosts(const Scenario& scenario, ScheduleQuestion& question) {
  ScheduleParams& params = question.params;
  const std::vector<LayerGroup>& groups = scenario.layer_costs->entries;
  const std::int64_t layers = CountLayers(groups);
  std::erase_if(question.chunks, [&](int chunks) {
    return chunks >= 1 && std::int64_t{chunks} * params.ranks > layers;
  });
  if (question.chunks.empty()) {
    return InvalidParameter("costs", ": has {} layers for {} ranks; each stage needs one", layers,
                            params.ranks);
  }
  params.forward = params.backward_input = params.backward_weight = 0;
  for (const LayerGroup& group : groups) {
    const double share = static_cast<double>(group.layers) / params.ranks;
    params.forward += share * group.costs.forward;
    params.backward_input += share * group.costs.backward_input;
    params.backward_weight += share * group.costs.backward_weight;
  }
  question.costs = [scenario, params](const Placement& placement) {
    return CostsByLayer(scenario, params, ShapeOf(placement, params.slices)).value();
  };
  return {};
}

Status SetPrecisions(const PlanRequest& request, PlanQuestion& question) {
  if (!request.precisions.empty() && request.scenario.precision) {
    return InvalidParameter("precisions", "has no effect with `precision`; leave one of them out");
  }
  for (const std::string& name : request.precisions) {
    PENSTOCK_TRY(const Precision precision,
                 ReadName<Precision>("precisions", name, kPrecisionNames));
    question.precisions.push_back(precision);
  }
  return {};
}

Status SetLimit(const Scenario& scenario, PlanQuestion& question) {
  if (!scenario.memory_limit) return {};
  const auto bytes = ParseBytes(*scenario.memory_limit);
  if (!bytes || *bytes <= 0) {
    return InvalidParameter("memory_limit",
                            "{}: with a model, bytes of a device are needed (70GiB)",
                            Quote(*scenario.memory_limit));
  }
  question.memory_limit = static_cast<double>(*bytes);
  return {};
}

}  // namespace

Result<TrainingRun> TrainingRunOf(const PlanRequest& request) {
  TrainingRun run;
  if (request.tokens) {
    PENSTOCK_TRY(run.tokens, Of("tokens", ParseTokens(*request.tokens)));
  }
  if (!request.price_per_hour) return run;
  if (!request.tokens) {
    return InvalidParameter("price_per_hour", "has no effect without `tokens`; give them");
  }
  if (!(*request.price_per_hour > 0)) {
    return InvalidParameter("price_per_hour", "{}: more than 0 is needed", *request.price_per_hour);
  }
  run.price_per_hour = *request.price_per_hour;
  return run;
}

Result<PlanQuestion> ModelQuestionOf(const PlanRequest& request) {
  PENSTOCK_TRY_STATUS(RefuseCosts(request));
  PENSTOCK_TRY_STATUS(CheckRanges(request.scenario));
  PlanQuestion question;
  question.scenario = request.scenario;
  question.scenario.memory_limit.reset();
  // Pairs of one device's kernels rarely take less than one after the other.
  if (!question.scenario.overlap) question.scenario.overlap = "sum";
  question.chunks = request.chunks;
  question.schedules = request.schedules;
  question.excluded = request.excluded;
  PENSTOCK_TRY_STATUS(CheckNames(request));
  if (!request.global_batch) {
    return InvalidParameter("global_batch", "is missing: how many samples does a step have?");
  }
  question.global_batch = *request.global_batch;
  PENSTOCK_TRY_STATUS(SetPrecisions(request, question));
  PENSTOCK_TRY_STATUS(SetLimit(request.scenario, question));
  PENSTOCK_TRY(const Framework framework, AskedFramework(request));
  PENSTOCK_TRY_STATUS(Restrict(framework, question));
  if (!request.framework) {
    question.advice = fmt::format("; plans are what {} runs unless `for` names another framework",
                                  framework.name);
  }
  return question;
}

Result<std::optional<OutlookQuestion>> OutlookQuestionOf(const PlanRequest& request) {
  if (!request.samples) {
    for (const auto& [parameter, given] : {std::pair("seed", request.seed.has_value()),
                                           {"uncertainty", !request.uncertainty.empty()}}) {
      if (given) return InvalidParameter(parameter, "has no effect without `samples`; give them");
    }
    return std::nullopt;
  }
  if (*request.samples < 1) {
    return InvalidParameter("samples", "{}: 1 or more are needed", *request.samples);
  }
  OutlookQuestion question;
  question.samples = static_cast<std::size_t>(*request.samples);
  question.seed = static_cast<std::uint64_t>(request.seed.value_or(1));
  PENSTOCK_TRY(question.constants, UncertainConstants(request.scenario, request.uncertainty));
  return question;
}

Result<ScheduleQuestion> ScheduleQuestionOf(const PlanRequest& request) {
  PENSTOCK_TRY_STATUS(RefuseTraining(request));
  Scenario scenario = request.scenario;
  if (request.costs) PENSTOCK_TRY_STATUS(ReadCosts(*request.costs, scenario));
  PENSTOCK_TRY_STATUS(CheckRanges(scenario));
  ScheduleQuestion question;
  PENSTOCK_TRY(question.params, ParamsOf(scenario));
  // A pair is no gain unless the user says so: without a model, nothing is known of it.
  if (!scenario.overlap) question.params.overlap = {OverlapRule::Kind::kSum};
  if (!request.chunks.empty()) question.chunks = request.chunks;
  if (request.costs) PENSTOCK_TRY_STATUS(SetLayerCosts(scenario, question));
  if (request.framework) {
    PENSTOCK_TRY(Framework framework, Of("for", FindFramework(*request.framework)));
    question.schedules = std::move(framework.schedules);
  }
  return question;
}

}  // namespace penstock
