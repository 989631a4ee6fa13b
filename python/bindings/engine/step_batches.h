// StepBatches: the batches of a run of several steps, as its stages read them. Private to the
// bindings. Threads: Begin and End while no rank runs; the sources read on the ranks' threads, and
// each report is set on the thread of a last stage's rank.
#pragma once

#include <cstdint>
#include <vector>

#include "bindings/engine/last_batch.h"
#include "schedule/schedule.h"
#include "train/stage/torch_stage.h"

namespace penstock::python {

class StepBatches {
 public:
  // The schedule must outlive the object.
  explicit StepBatches(const Schedule& schedule) : schedule_(schedule) {}

  // The run's first step has the number `first`. See EnginePipeline::Run for the others.
  void Begin(std::int64_t first, std::vector<Batch> batches,
             std::vector<std::vector<std::int64_t>> shapes);
  void End() { batches_.clear(); }

  const std::vector<Batch>& all() const { return batches_; }
  std::int64_t IndexOf(std::int64_t step) const { return step - first_; }
  bool IsLast(std::int64_t step) const { return IndexOf(step) == std::ssize(batches_) - 1; }

  // Returns what a stage reads. The object must outlive it.
  BatchSource SourceOf(bool is_last_stage);
  // What last stages of this process reported in the last step, by microbatch (or slice).
  const std::vector<Tensors>& reports() const { return reports_; }

 private:
  const Schedule& schedule_;
  std::int64_t first_ = 0;
  std::vector<Batch> batches_;
  std::vector<std::vector<std::int64_t>> shapes_;
  std::vector<Tensors> reports_;
};

}  // namespace penstock::python
