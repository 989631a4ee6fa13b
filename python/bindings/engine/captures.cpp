#include "bindings/engine/captures.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "train/stage/stage_spec.h"

namespace penstock::python {

std::optional<CaptureDifference> FirstDifference(std::span<const StageProgram> captured,
                                                 std::span<const StageProgram> programs) {
  for (std::size_t i = 0; i < std::min(captured.size(), programs.size()); ++i) {
    const auto difference = penstock::FirstDifference(captured[i].captured, programs[i].captured);
    if (difference) return difference;
  }
  return {};
}

std::span<const StageProgram> Captures::Of(int model_stage,
                                           const std::shared_ptr<PythonStage>& module,
                                           const StageExamples& examples,
                                           TorchStageOptions options) {
  auto found = by_stage_.find(model_stage);
  if (found == by_stage_.end()) {
    options.programs = nullptr;
    options.compile.captures_only = true;
    auto programs = CompileSlices(module, examples, options);
    if (!programs) throw std::runtime_error(programs.error().line());
    found = by_stage_.emplace(model_stage, *std::move(programs)).first;
  }
  return found->second;
}

}  // namespace penstock::python
