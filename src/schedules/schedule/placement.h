// Placement: which rank holds which stage, as data.
//
// Stages are numbered along the model. With `replicas` K > 1 the stages form K consecutive chains
// of equal length, each a replica of the model; stage L*c + k of chain c is the model's k-th stage,
// where L = stages()/K. No other file asks whether a placement is a vee.
#pragma once

#include <vector>

#include "base/result.h"

namespace penstock {

class Placement {
 public:
  Placement() = default;

  // Stage s on rank s.
  static Placement Linear(int ranks);
  // Stage s on rank s % ranks, `chunks` stages per rank (interleaved).
  static Placement Looped(int ranks, int chunks);
  // The stages of chunk c go up the ranks for even c and down for odd c. Two chunks form a vee.
  static Placement Zigzag(int ranks, int chunks);
  static Placement Vee(int ranks) { return Zigzag(ranks, 2); }
  // Two chains: stage k on rank k, and its replica p+k on rank p-1-k (DualPipe, Chimera).
  static Placement Bidirectional(int ranks);
  // Any other placement: rank_of_stage[s] is the rank of stage s. Refuses ranks outside [0, ranks),
  // and stages that do not split evenly into `replicas` chains.
  static Result<Placement> FromRanks(std::vector<int> rank_of_stage, int ranks, int replicas = 1);

  int ranks() const { return static_cast<int>(stages_of_rank_.size()); }
  int stages() const { return static_cast<int>(rank_of_stage_.size()); }
  int replicas() const { return replicas_; }
  // Stages a microbatch passes through.
  int chain_length() const { return stages() / replicas_; }

  int rank_of(int stage) const { return rank_of_stage_[stage]; }
  // The rank's stages, ascending.
  const std::vector<int>& stages_of(int rank) const { return stages_of_rank_[rank]; }
  // The largest number of stages of one chain on one rank (v; 1 with two chains).
  int chunks() const;

  // The previous and next stage of its chain; -1 at the ends.
  int previous(int stage) const { return stage % chain_length() == 0 ? -1 : stage - 1; }
  int next(int stage) const { return (stage + 1) % chain_length() == 0 ? -1 : stage + 1; }
  // The stage's index in the model, 0 to chain_length()-1. Replicas have the same one.
  int model_stage(int stage) const { return stage % chain_length(); }

  friend bool operator==(const Placement&, const Placement&) = default;

 private:
  Placement(std::vector<int> rank_of_stage, int ranks, int replicas);

  std::vector<int> rank_of_stage_;
  std::vector<std::vector<int>> stages_of_rank_;
  int replicas_ = 1;
};

}  // namespace penstock
