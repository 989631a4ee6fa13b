#include "schedule/pricing/microbatch_lengths.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>

#include "base/index.h"

namespace penstock {
namespace {

constexpr std::string_view kName = "microbatch_lengths";

// Times and memory of a stage's weights do not depend on the length.
void Scale(StageCosts& stage, double length) {
  for (const StageCost& cost : kStageCosts) {
    if (cost.of == CostOf::kMicrobatch) stage.*cost.value *= length;
  }
}

// Returns mean times and lengths and the largest memory of the indices of a stage.
StageCosts ToPlanWith(std::span<const StageCosts> indices) {
  StageCosts planned = indices.front();
  for (const StageCost& cost : kStageCosts) {
    if (cost.of == CostOf::kStage || cost.kind == CostKind::kMemoryChange) continue;
    double& value = planned.*cost.value;
    double sum = 0;
    for (const StageCosts& each : indices) {
      sum += each.*cost.value;
      value = std::max(value, each.*cost.value);
    }
    if (cost.kind != CostKind::kMemory) value = sum / static_cast<double>(indices.size());
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

}  // namespace

Status CheckLengths(const std::vector<double>& lengths) {
  for (const double length : lengths) {
    if (std::isfinite(length) && length > 0) continue;
    return InvalidParameter(kName, "{}: a length is finite and more than 0", length);
  }
  return {};
}

Status ScaleByLength(Costs& costs, const std::vector<double>& lengths, const BatchShape& shape) {
  PENSTOCK_CHECK(costs.stages.size() == Index(shape.placement.stages()), "costs of {} stages",
                 costs.stages.size());
  PENSTOCK_TRY_STATUS(CheckLengths(lengths));
  const std::string text = fmt::format("{}", fmt::join(lengths, ","));
  if (lengths.size() > Index(shape.microbatches)) {
    return InvalidParameter(kName, "{}: {} lengths for {} microbatches; give at most one for each",
                            text, lengths.size(), shape.microbatches);
  }
  if (lengths.empty()) return {};
  if (std::ranges::adjacent_find(lengths, std::not_equal_to<>()) == lengths.end()) {
    costs.ForEachStage([&](StageCosts& stage) { Scale(stage, lengths.front()); });
  } else {
    ScaleEachIndex(costs, lengths, shape);
  }
  for (const std::vector<StageCosts>* list : {&costs.stages, &costs.by_slice}) {
    for (const StageCosts& stage : *list) {
      const Status status = CheckStage(stage);
      if (!status) return InvalidParameter(kName, "{}: costs {}", text, status.error().line());
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
