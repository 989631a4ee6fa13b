// StepFigures: the losses of a run of several steps, and the figures of its last step, on every
// process. Private to the bindings.
#pragma once

#include <limits>
#include <span>
#include <vector>

#include "base/result.h"
#include "bindings/engine/python_stage.h"
#include "runtime/processes/collectives.h"

namespace penstock::python {

// What this process's stages computed in the last step of a run. Each is set on the thread of a
// last stage's rank.
struct OwnFigures {
  bool has_final = false;  // whether it has the last stage of the last chain
  double norm = std::numeric_limits<double>::quiet_NaN();  // see EnginePipeline::Figures
  std::vector<float> losses;                               // by microbatch (or slice)
};

class StepFigures {
 public:
  // Declares how many of a last stage's reports are metrics, fp32 scalars; the others are outputs.
  void SetMetrics(int metrics) { metrics_ = metrics; }

  // Combines the figures of all processes, and replaces the losses of the steps by those of the
  // process with the last stage of the last chain. `own` is null without a last stage of any chain.
  // Collective.
  Status Gather(Collectives& processes, const OwnFigures* own, std::span<const Tensors> reports,
                std::vector<double>& losses);

  const std::vector<double>& values() const { return values_; }
  // Returns the outputs among the reports of each microbatch.
  std::vector<Tensors> OutputsOf(std::span<const Tensors> reports) const;

 private:
  // NaN where this process has none.
  std::vector<double> ValuesOf(const OwnFigures& own, std::span<const Tensors> reports) const;

  int metrics_ = 0;
  std::vector<double> values_;
};

}  // namespace penstock::python
