#include "train/profile/measured_pipeline.h"

#include <ATen/Parallel.h>

#include <algorithm>

#include "base/index.h"
#include "base/median.h"
#include "config/run_schedule.h"
#include "runtime/executor/run.h"
#include "runtime/measure/trace.h"
#include "train/memory/memory_need.h"

namespace penstock {
namespace {

double BytesOfAll(const std::vector<NamedParameter>& parameters, at::Tensor NamedParameter::*part) {
  double bytes = 0;
  for (const NamedParameter& parameter : parameters) {
    const at::Tensor& tensor = parameter.*part;
    if (tensor.defined()) bytes += static_cast<double>(tensor.nbytes());
  }
  return bytes;
}

}  // namespace

Result<std::unique_ptr<MeasuredPipeline>> MeasuredPipeline::Make(
    TrainConfig config, int threads, const std::shared_ptr<const SampleSource>& samples) {
  PENSTOCK_TRY(Schedule schedule, ChooseSchedule(config, threads));
  PENSTOCK_TRY([[maybe_unused]] const std::string need,
               CheckMemoryNeed(config, schedule, LocalRanks(schedule.ranks())));
  std::unique_ptr<MeasuredPipeline> made(
      new MeasuredPipeline(std::move(config), std::move(schedule), threads));
  PENSTOCK_TRY(made->pipeline_, BuildPipeline(made->config_, made->schedule_,
                                              MakeBatchSource(samples, made->config_)));
  return made;
}

Status MeasuredPipeline::Run(int steps) {
  PENSTOCK_TRY(Trace trace, Trace::Make(schedule_, steps));
  RunOptions options;
  options.steps = steps;
  options.first_step = done_;
  options.update = UpdateRuleOf(config_.optimizer);
  options.update.zero = pipeline_.zero;
  options.on_thread_start = [this](int) { at::set_num_threads(threads_); };
  options.ranks = &ranks_;
  options.trace = &trace;
  const std::vector<Stage*> stages = pipeline_.pointers();
  PENSTOCK_TRY_STATUS(RunRanks(schedule_, stages, options));
  done_ += steps;
  const RunMeasure measure = MeasureRun(trace, 1);
  Costs costs = MeasuredCosts(trace, 1);
  std::vector<double> updates;
  for (const RankMeasure& rank : measure.ranks) updates.push_back(rank.optimizer);
  const double first = updates[Index(schedule_.placement.rank_of(0))];
  SetStates(costs);
  SetSteps(updates, costs);
  between_steps_.push_back(std::max(0.0, measure.step_time - measure.makespan - first));
  costs_.push_back(std::move(costs));
  return {};
}

// Sets the memory that no microbatch changes.
void MeasuredPipeline::SetStates(Costs& costs) const {
  for (std::size_t stage = 0; stage < pipeline_.stages.size(); ++stage) {
    const std::vector<NamedParameter>& parameters = pipeline_.stages[stage]->Parameters();
    StageCosts& of = costs.stages[stage];
    of.weights = BytesOfAll(parameters, &NamedParameter::value);
    of.version = of.weights;
    of.gradients = BytesOfAll(parameters, &NamedParameter::gradient);
    of.optimizer = static_cast<double>(pipeline_.optimizers[stage]->Bytes());
  }
}

// A rank measures its update as a whole. Its stages have shares by the size of their parameters.
void MeasuredPipeline::SetSteps(const std::vector<double>& by_rank, Costs& costs) const {
  for (int rank = 0; rank < schedule_.ranks(); ++rank) {
    double bytes = 0;
    for (const int stage : schedule_.placement.stages_of(rank)) {
      bytes += costs.stages[Index(stage)].weights;
    }
    for (const int stage : schedule_.placement.stages_of(rank)) {
      StageCosts& of = costs.stages[Index(stage)];
      of.step = bytes > 0 ? by_rank[Index(rank)] * of.weights / bytes : 0;
    }
  }
}

Costs MeasuredPipeline::MedianCosts() const {
  Costs median = costs_.front();
  for (std::size_t stage = 0; stage < median.stages.size(); ++stage) {
    for (const StageCost& cost : kStageCosts) {
      std::vector<double> values;
      for (const Costs& run : costs_) values.push_back(run.stages[stage].*cost.value);
      median.stages[stage].*cost.value = Median(std::move(values));
    }
  }
  std::vector<double> latencies;
  for (const Costs& run : costs_) latencies.push_back(run.comm);
  median.comm = Median(std::move(latencies));
  return median;
}

double MeasuredPipeline::MedianBetweenSteps() const { return Median(between_steps_); }

double MeasuredPipeline::message_bytes() const {
  double bytes = 0;
  for (const at::Tensor& output : pipeline_.stages.front()->ExampleOutputs()) {
    bytes += static_cast<double>(output.nbytes());
  }
  return bytes;
}

}  // namespace penstock
