#include "schedule/placement.h"

#include <algorithm>

namespace penstock {

Placement::Placement(std::vector<int> rank_of_stage, int ranks, int replicas)
    : rank_of_stage_(std::move(rank_of_stage)), stages_of_rank_(ranks), replicas_(replicas) {
  for (int stage = 0; stage < stages(); ++stage) {
    stages_of_rank_[rank_of(stage)].push_back(stage);
  }
}

Placement Placement::Linear(int ranks) { return Looped(ranks, 1); }

Placement Placement::Looped(int ranks, int chunks) {
  std::vector<int> rank_of_stage;
  for (int stage = 0; stage < ranks * chunks; ++stage) rank_of_stage.push_back(stage % ranks);
  return {std::move(rank_of_stage), ranks, 1};
}

Placement Placement::Zigzag(int ranks, int chunks) {
  std::vector<int> rank_of_stage;
  for (int chunk = 0; chunk < chunks; ++chunk) {
    for (int k = 0; k < ranks; ++k) rank_of_stage.push_back(chunk % 2 == 0 ? k : ranks - 1 - k);
  }
  return {std::move(rank_of_stage), ranks, 1};
}

Placement Placement::Bidirectional(int ranks) {
  Placement placement = Zigzag(ranks, 2);
  placement.replicas_ = 2;
  return placement;
}

Result<Placement> Placement::FromRanks(std::vector<int> rank_of_stage, int ranks, int replicas) {
  const int stages = static_cast<int>(rank_of_stage.size());
  if (replicas < 1 || stages % replicas != 0) {
    return InvalidArgument("{} stages do not split into {} replicas of equal length", stages,
                           replicas);
  }
  for (int stage = 0; stage < stages; ++stage) {
    const int rank = rank_of_stage[stage];
    if (rank < 0 || rank >= ranks) {
      return InvalidArgument("stage {} is on rank {}; ranks are 0 to {}", stage, rank, ranks - 1);
    }
  }
  return Placement(std::move(rank_of_stage), ranks, replicas);
}

int Placement::chunks() const {
  int most = 0;
  std::vector<int> of_chain(replicas_);
  for (const auto& stages : stages_of_rank_) {
    std::ranges::fill(of_chain, 0);
    for (const int stage : stages) most = std::max(most, ++of_chain[stage / chain_length()]);
  }
  return most;
}

}  // namespace penstock
