// Captures: what stages of a model computed when they were captured, to compare it with what was
// built. Threads: one at a time. Errors: std::runtime_error with a one-line message.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "bindings/engine/python_stage.h"
#include "graph/ir/fingerprint.h"
#include "train/stage/torch_stage.h"

namespace penstock::python {

// Returns where programs differ from the ones that were captured before them, one per slice.
std::optional<CaptureDifference> FirstDifference(std::span<const StageProgram> captured,
                                                 std::span<const StageProgram> programs);

class Captures {
 public:
  // Captures a stage of the model, unless it has been captured since the last Clear. Returns
  // programs without pieces, one per slice. Call it without the GIL.
  std::span<const StageProgram> Of(int model_stage, const std::shared_ptr<PythonStage>& module,
                                   const StageExamples& examples, TorchStageOptions options);
  // Requires: the stage has been captured.
  std::span<const StageProgram> at(int model_stage) const { return by_stage_.at(model_stage); }
  void Clear() { by_stage_.clear(); }

 private:
  std::map<int, std::vector<StageProgram>> by_stage_;
};

}  // namespace penstock::python
