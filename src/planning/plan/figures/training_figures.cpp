#include "plan/figures/training_figures.h"

#include <utility>

#include "scenario/command_line.h"
#include "scenario/evidence/evidence.h"
#include "scenario/price/step_figures.h"

namespace penstock {
namespace {

using Json = nlohmann::ordered_json;

}  // namespace

double MfuOf(const TrainingPlan& plan) {
  const auto model = plan.scenario.Load();
  if (!model) return 0;
  const double peak = model->cluster.mean_flops(model->batch.precision);
  return peak > 0 ? plan.estimate.flops_per_device() / peak : 0;
}

Json FiguresOf(const TrainingPlan& plan, const TrainingRun& run) {
  const JobDivision& division = plan.division;
  Json figures = {{"framework", plan.framework.empty() ? Json() : Json(plan.framework)},
                  {"implementation", plan.implementation()},
                  {"tensor", division.tensor},
                  {"pipeline", division.pipeline},
                  {"chunks", plan.chunks},
                  {"context", division.context},
                  {"data", division.data},
                  {"expert", division.expert},
                  {"expert_tensor", division.experts_tensor()},
                  {"zero", division.zero},
                  {"micro_batch", division.micro_batch},
                  {"microbatches", division.microbatches},
                  {"schedule", plan.schedule},
                  {"slices", plan.slices},
                  {"recompute", division.recompute},
                  {"gather_again", division.gather_again},
                  {"offloaded_layers", division.offloaded_layers},
                  {"precision", plan.scenario.precision.value_or("bf16")},
                  {"layout", plan.scenario.layout ? Json(*plan.scenario.layout) : Json()},
                  {"step_time", plan.step_time()},
                  {"tokens_per_second", plan.estimate.tokens_per_second()},
                  {"mfu", MfuOf(plan)},
                  {"bubble", plan.bubble()},
                  {"peak_bytes", plan.bytes()},
                  {"lower_bound", plan.lower_bound},
                  {"gap", plan.lower_bound > 0 ? plan.step_time() / plan.lower_bound - 1 : 0},
                  {"command", CommandLineOf(plan.scenario)}};
  if (division.context > 1 && plan.scenario.context_exchange) {
    figures["context_exchange"] = *plan.scenario.context_exchange;
  }
  const Scenario& scenario = plan.scenario;
  if (scenario.dispatcher) figures["dispatcher"] = *scenario.dispatcher;
  if (scenario.cuda_graphs) figures["cuda_graphs"] = *scenario.cuda_graphs;
  if (scenario.overlapped_experts) figures["overlapped_experts"] = *scenario.overlapped_experts;
  if (scenario.optimizer_states) figures["optimizer_states"] = *scenario.optimizer_states;
  if (scenario.offloaded_states) figures["offloaded_states"] = *scenario.offloaded_states;
  if (plan.scenario.across_sites) figures["across_sites"] = *plan.scenario.across_sites;
  AddCheckpoints(plan.estimate, figures);
  if (const auto model = plan.scenario.Load()) figures["measured"] = ToJson(EvidenceOf(*model));
  if (run.tokens > 0) figures["days"] = run.days(plan.estimate);
  if (run.price_per_hour > 0) figures["cost"] = run.cost(plan.estimate);
  return figures;
}

Json FiguresOf(const PlanAnswer& answer, double seconds, const TrainingRun& run) {
  Json front = Json::array(), runners_up = Json::array();
  for (const TrainingPlan& plan : answer.front) front.push_back(FiguresOf(plan, run));
  for (const TrainingPlan& plan : answer.runners_up) {
    Json object = FiguresOf(plan, run);
    object["why_not"] = WhyNot(plan, answer.best());
    object.erase("lower_bound");
    object.erase("gap");
    runners_up.push_back(std::move(object));
  }
  return {{"best", FiguresOf(answer.best(), run)},
          {"front", std::move(front)},
          {"runners_up", std::move(runners_up)},
          {"lower_bound", answer.lower_bound},
          {"memory_limit", answer.memory_limit},
          {"divisions", answer.divisions},
          {"searched", answer.searched},
          {"stopped", answer.stopped},
          {"seconds", seconds}};
}

}  // namespace penstock
