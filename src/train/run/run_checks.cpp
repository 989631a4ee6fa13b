#include "train/run/run_checks.h"

namespace penstock {

Result<std::vector<std::string>> CheckRun(const TrainConfig& config) {
  for (const std::int64_t step : config.trace_steps) {
    if (step < config.steps) continue;
    return InvalidArgument("trace_steps: the run has no step {}; its steps are 0 to {}", step,
                           config.steps - 1);
  }
  const bool evaluates = config.validation.freq > 0;
  if (!evaluates && (config.validation.patience > 0 || config.checkpoint.best)) {
    return InvalidArgument("{} has no effect without validation.freq: set it",
                           config.checkpoint.best ? "checkpoint.best" : "validation.patience");
  }
  const OptimizerConfig& optimizer = config.optimizer;
  if (optimizer.post_validation && !UpdateRuleOf(optimizer).needs_norm()) {
    return InvalidArgument(
        "optimizer.post_validation has no effect without optimizer.clip or "
        "optimizer.nonfinite=skip: set one of them");
  }
  std::vector<std::string> lines;
  if (optimizer.warmup > config.steps) {
    lines.push_back(fmt::format(
        "optimizer.warmup is {} steps and the run has {}: the learning rate ends at "
        "{:.3g}, below its peak of {:.3g}",
        optimizer.warmup, config.steps,
        optimizer.lr * static_cast<double>(config.steps) / optimizer.warmup, optimizer.lr));
  }
  return lines;
}

}  // namespace penstock
