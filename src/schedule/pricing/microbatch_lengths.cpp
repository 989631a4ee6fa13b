#include "schedule/pricing/microbatch_lengths.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <span>

#include "base/index.h"

namespace penstock {
namespace {

// The costs of one microbatch. Times and memory of a stage's weights do not depend on the length.
constexpr double StageCosts::*kTimesOfMicrobatch[] = {
    &StageCosts::forward,          &StageCosts::backward_input,
    &StageCosts::backward_weight,  &StageCosts::saved_by_whole_backward,
    &StageCosts::recompute,        &StageCosts::embed,
    &StageCosts::vocabulary_input, &StageCosts::vocabulary_weight,
    &StageCosts::embed_gradient};
constexpr double StageCosts::*kSizesOfMicrobatch[] = {
    &StageCosts::activation, &StageCosts::activation_after_i,  &StageCosts::input_activation,
    &StageCosts::softmax,    &StageCosts::gradients_of_others, &StageCosts::length,
    &StageCosts::workspace};

void Scale(StageCosts& stage, double length) {
  for (double StageCosts::*time : kTimesOfMicrobatch) stage.*time *= length;
  for (double StageCosts::*size : kSizesOfMicrobatch) stage.*size *= length;
}

// Returns mean times and lengths and the largest memory of the indices of a stage.
StageCosts ToPlanWith(std::span<const StageCosts> indices) {
  StageCosts planned = indices.front();
  const auto set_mean = [&](double StageCosts::*field) {
    double sum = 0;
    for (const StageCosts& each : indices) sum += each.*field;
    planned.*field = sum / static_cast<double>(indices.size());
  };
  for (double StageCosts::*time : kTimesOfMicrobatch) set_mean(time);
  set_mean(&StageCosts::length);
  for (double StageCosts::*memory : kMemoryOfStage) {
    for (const StageCosts& each : indices) {
      planned.*memory = std::max(planned.*memory, each.*memory);
    }
  }
  return planned;
}

// Gives each index of a batch its costs; only the first ones if the lengths repeat in each chain.
void ScaleEachIndex(Costs& costs, const std::vector<double>& lengths, const BatchShape& shape) {
  const Costs before = costs;
  costs.by_slice.clear();
  const std::size_t slices = Index(shape.slices);
  const std::size_t in_chain = Index(shape.microbatches / shape.placement.replicas());
  const bool repeats = before.by_slice.empty() && in_chain % lengths.size() == 0;
  const std::size_t distinct = slices * (repeats ? lengths.size() : in_chain);
  costs.by_slice.reserve(before.stages.size() * distinct);
  for (int stage = 0; stage < shape.placement.stages(); ++stage) {
    const std::size_t first = in_chain * Index(stage / shape.placement.chain_length());
    for (std::size_t i = 0; i < distinct; ++i) {
      const Part part{Op::kForward, static_cast<std::uint16_t>(stage), static_cast<int>(i)};
      costs.by_slice.push_back(before.Of(part));
      Scale(costs.by_slice.back(), lengths[(first + i / slices) % lengths.size()]);
    }
    costs.stages[stage] = ToPlanWith(std::span(costs.by_slice).last(distinct));
  }
}

Status CheckRange(const StageCosts& stage) {
  for (double StageCosts::*time : kTimesOfMicrobatch) PENSTOCK_TRY_STATUS(CheckTime(stage.*time));
  for (double StageCosts::*size : kMemoryOfStage) PENSTOCK_TRY_STATUS(CheckMemory(stage.*size));
  return CheckMemory(stage.length);
}

}  // namespace

Status CheckLengths(const std::vector<double>& lengths) {
  for (const double length : lengths) {
    if (std::isfinite(length) && length > 0) continue;
    return InvalidArgument("microbatch_lengths {}: a length is finite and more than 0", length);
  }
  return {};
}

Status ScaleByLength(Costs& costs, const std::vector<double>& lengths, const BatchShape& shape) {
  PENSTOCK_CHECK(costs.stages.size() == Index(shape.placement.stages()), "costs of {} stages",
                 costs.stages.size());
  PENSTOCK_TRY_STATUS(CheckLengths(lengths));
  const std::string name = fmt::format("microbatch_lengths {}", fmt::join(lengths, ","));
  if (lengths.size() > Index(shape.microbatches)) {
    return InvalidArgument("{}: {} lengths for {} microbatches; give at most one for each", name,
                           lengths.size(), shape.microbatches);
  }
  if (lengths.empty()) return {};
  if (std::ranges::adjacent_find(lengths, std::not_equal_to<>()) == lengths.end()) {
    costs.ForEachStage([&](StageCosts& stage) { Scale(stage, lengths.front()); });
  } else {
    ScaleEachIndex(costs, lengths, shape);
  }
  for (const std::vector<StageCosts>* list : {&costs.stages, &costs.by_slice}) {
    for (const StageCosts& stage : *list) {
      const Status status = CheckRange(stage);
      if (!status) return InvalidArgument("{}: costs {}", name, status.error().line());
    }
  }
  return {};
}

double MeanLength(const Costs& costs, const BatchShape& shape) {
  double sum = 0;
  const int indices = shape.microbatches / shape.placement.replicas() * shape.slices;
  for (int chain = 0; chain < shape.placement.replicas(); ++chain) {
    const auto stage = static_cast<std::uint16_t>(chain * shape.placement.chain_length());
    for (int i = 0; i < indices; ++i) sum += costs.Of({Op::kForward, stage, i}).length;
  }
  const double count = double{1} * indices * shape.placement.replicas();
  return count > 0 ? sum / count : 1;
}

}  // namespace penstock
