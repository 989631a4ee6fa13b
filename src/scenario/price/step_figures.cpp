#include "scenario/price/step_figures.h"

namespace penstock {

void AddCheckpoints(const StepEstimate& step, nlohmann::ordered_json& figures) {
  if (!step.checkpoints) return;
  figures["expected_tokens_per_second"] = step.expected_tokens_per_second();
  figures["training_part"] = step.checkpoints->training_part;
  figures["checkpoint_steps"] = step.checkpoints->steps;
}

}  // namespace penstock
