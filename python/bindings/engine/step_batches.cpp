#include "bindings/engine/step_batches.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <iterator>

#include "base/index.h"

namespace penstock::python {
namespace {

// Returns a part of a tensor of the whole batch. `index` counts the slices of all microbatches. If
// microbatches do not divide the batch, the first ones have one sample more.
at::Tensor PartOf(const at::Tensor& whole, int index, int microbatches, int slices) {
  if (whole.dim() == 0) return whole.detach();
  const auto part = [](const at::Tensor& of, int dim, std::int64_t number, std::int64_t count) {
    const std::int64_t size = of.size(dim) / count, larger = of.size(dim) % count;
    return of.narrow(dim, number * size + std::min(number, larger), size + (number < larger));
  };
  const at::Tensor microbatch = part(whole, 0, index / slices, microbatches);
  return slices == 1 ? microbatch : part(microbatch, 1, index % slices, slices);
}

}  // namespace

void StepBatches::Begin(std::int64_t first, std::vector<Batch> batches,
                        std::vector<std::vector<std::int64_t>> shapes) {
  first_ = first;
  batches_ = std::move(batches);
  shapes_ = std::move(shapes);
  reports_.assign(Index(schedule_.microbatches * schedule_.slices), {});
}

BatchSource StepBatches::SourceOf(bool is_last_stage) {
  BatchSource source;
  const auto parts_of = [this](Tensors Batch::*tensors) {
    return [this, tensors](std::int64_t step, int index, std::span<at::Tensor> to) {
      const at::NoGradGuard no_gradients;
      const Batch& batch = batches_[Index(IndexOf(step))];
      std::ranges::transform(batch.*tensors, to.begin(), [&](const at::Tensor& whole) {
        return PartOf(whole, index, schedule_.microbatches, schedule_.slices);
      });
    };
  };
  source.all_inputs = parts_of(&Batch::first);
  source.all_targets = parts_of(&Batch::second);
  if (is_last_stage) {
    source.take_reports = [this](std::int64_t step, int index, std::span<at::Tensor> reports) {
      if (!IsLast(step)) return;
      reports_[Index(index)].assign(std::make_move_iterator(reports.begin()),
                                    std::make_move_iterator(reports.end()));
    };
  }
  source.shape = [this](std::int64_t step, int index) {
    const std::vector<std::int64_t>& shapes = shapes_[Index(IndexOf(step))];
    return shapes.size() == 1 ? shapes.front() : shapes[Index(index)];
  };
  return source;
}

}  // namespace penstock::python
