#include "scenario/price/next_to_file.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/index.h"
#include "interop/primus/dump.h"
#include "interop/traces/recorded_run.h"
#include "scenario/fields.h"
#include "schedule/catalog.h"

namespace penstock {
namespace {

bool IsFile(const Candidate& candidate) { return candidate.kind == Candidate::Kind::kFile; }

bool HasMeasuredCosts(const Candidate& candidate) {
  return IsFile(candidate) && (IsRecordedRun(candidate.name) || IsPrimusDump(candidate.name));
}

// Whether each stage of a rank has its share of the rank's cost. The others are as large for one
// stage as for all.
bool IsDivided(const StageCost& cost) {
  return cost.kind != CostKind::kFactor && cost.price.per != PricePer::kMicrobatch &&
         cost.price.per != PricePer::kStageAndMicrobatch;
}

// Scales the costs of one microbatch index.
void ScaleIndex(double factor, StageCosts& stage) {
  for (const StageCost& cost : kStageCosts) {
    if (cost.of == CostOf::kMicrobatch && cost.kind != CostKind::kFactor) {
      stage.*cost.value *= factor;
    }
  }
}

StageCosts Nothing() {
  StageCosts none;
  for (const StageCost& cost : kStageCosts) none.*cost.value = 0;
  return none;
}

// Returns what a rank costs for each microbatch and chain.
StageCosts CostsOfRank(const FileCosts& file, int rank) {
  StageCosts all = Nothing();
  const std::vector<int>& stages = file.placement.stages_of(rank);
  for (const int stage : stages) {
    const StageCosts& each = file.costs.stages[Index(stage)];
    for (const StageCost& cost : kStageCosts) {
      double& sum = all.*cost.value;
      sum = IsDivided(cost) ? sum + each.*cost.value / file.placement.replicas()
                            : std::max(sum, each.*cost.value);
    }
  }
  return all;
}

// Returns the mean of the file's ranks, for `ranks` of them that do the same work.
StageCosts MeanRank(const FileCosts& file, int ranks) {
  StageCosts mean = Nothing();
  for (int rank = 0; rank < file.placement.ranks(); ++rank) {
    const StageCosts each = CostsOfRank(file, rank);
    for (const StageCost& cost : kStageCosts) {
      double& sum = mean.*cost.value;
      // Without a unit, memory is relative to what a rank holds.
      const bool is_relative = cost.is_memory() && !file.in_bytes;
      const int divisor = is_relative ? file.placement.ranks() : ranks;
      sum = IsDivided(cost) ? sum + each.*cost.value / divisor : std::max(sum, each.*cost.value);
    }
  }
  return mean;
}

// Returns the costs of one of `stages` stages of a chain on a rank.
StageCosts ShareOf(StageCosts rank, double stages) {
  for (const StageCost& cost : kStageCosts) {
    if (IsDivided(cost)) rank.*cost.value /= stages;
  }
  for (const StageCost& cost : kStageCosts) {
    if (cost.at_most) rank.*cost.value = std::min(rank.*cost.value, rank.*cost.at_most);
  }
  return rank;
}

bool IsSame(const Placement& placement, const CostShape& shape) {
  if (placement.ranks() != shape.ranks || placement.replicas() != shape.replicas) return false;
  for (int stage = 0; stage < placement.stages(); ++stage) {
    if (std::ssize(shape.ranks_of_chains) != placement.stages()) return false;
    if (shape.ranks_of_chains[Index(stage)] != placement.rank_of(stage)) return false;
  }
  return true;
}

std::vector<StageCosts> StagesNextTo(const FileCosts& file, const CostShape& shape) {
  std::vector<StageCosts> stages;
  for (std::size_t stage = 0; stage < shape.ranks_of_chains.size(); ++stage) {
    const int rank = shape.ranks_of_chains[stage];
    const auto chain = shape.ranks_of_chains.begin() +
                       std::ptrdiff_t{1} * shape.stages * (static_cast<int>(stage) / shape.stages);
    const auto on_rank = std::count(chain, chain + shape.stages, rank);
    stages.push_back(ShareOf(file.placement.ranks() == shape.ranks ? CostsOfRank(file, rank)
                                                                   : MeanRank(file, shape.ranks),
                             static_cast<double>(on_rank)));
  }
  return stages;
}

// Sets the field unless it has a value or the algorithm does not read it.
void SetSize(std::optional<int>& field, int size, bool is_read) {
  if (!field && is_read) field = size;
}

// Sets the size of an algorithm's schedule to the file's where the user gives no other.
Status TakeSize(const Schedule& file, const Candidate& candidate, Scenario& scenario) {
  PENSTOCK_TRY(const Algorithm* algorithm, FindAlgorithm(candidate.name));
  const SupportedParameters& reads = algorithm->supported;
  const int chunks = file.placement.chunks();
  SetSize(scenario.ranks, file.ranks(), true);
  SetSize(scenario.microbatches, file.microbatches, true);
  // One stage per rank says nothing about algorithms whose default is more.
  SetSize(scenario.chunks, chunks,
          chunks > 1 && reads.min_chunks <= chunks && chunks <= reads.max_chunks);
  SetSize(scenario.slices, file.slices, reads.slices);
  SetSize(scenario.steps, file.steps, reads.steps);
  return {};
}

// Returns the scenario of a candidate next to the reference.
Result<Scenario> LikeReference(const ReferenceFile& reference, const Scenario& scenario,
                               const Candidate& candidate, const Purpose& purpose) {
  const PricedSchedule& file = reference.built;
  Scenario like = scenario;
  if (purpose.prices && file.file_costs && !HasMeasuredCosts(candidate)) {
    PENSTOCK_TRY(const Scenario own, ScenarioOf(like, candidate));
    if (!own.has_costs()) like.file_costs = file.file_costs;
  }
  if (!IsFile(candidate)) {
    PENSTOCK_TRY_STATUS(TakeSize(file.schedule, candidate, like));
  }
  return like;
}

}  // namespace

Costs CostsNextTo(const FileCosts& file, const CostShape& shape) {
  Costs costs = file.costs;
  const bool is_same = IsSame(file.placement, shape);
  if (!is_same || file.slices != shape.slices) costs.by_slice.clear();
  if (!is_same) costs.stages = StagesNextTo(file, shape);
  if (file.slices == shape.slices) return costs;
  for (StageCosts& stage : costs.stages) {
    ScaleIndex(static_cast<double>(file.slices) / shape.slices, stage);
  }
  return costs;
}

Result<std::optional<ReferenceFile>> BuildReference(const Scenario& scenario,
                                                    const Purpose& purpose) {
  const std::vector<Candidate>& candidates = scenario.schedules;
  auto file = std::ranges::find_if(candidates, HasMeasuredCosts);
  if (file == candidates.end()) file = std::ranges::find_if(candidates, IsFile);
  if (file == candidates.end()) return std::nullopt;
  auto built = BuildOne(scenario, *file, purpose);
  if (!built) return tl::unexpected(About(*file, std::move(built).error()));
  return ReferenceFile{Index(file - candidates.begin()), std::move(*built)};
}

Result<PricedSchedule> BuildNextTo(const ReferenceFile& reference, const Scenario& scenario,
                                   const Candidate& candidate, const Purpose& purpose) {
  PENSTOCK_TRY(const Scenario like, LikeReference(reference, scenario, candidate, purpose));
  return BuildOne(like, candidate, purpose);
}

}  // namespace penstock
