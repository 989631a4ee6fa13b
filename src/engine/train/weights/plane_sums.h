// PlaneSums: what a stage adds over the planes of a mesh. A plane is a pipeline of its own, whose
// processes have one coordinate along the mesh's tensor and context dimensions.
//
// Private to train/. Threads: as StageWeights. Order: as all collectives of the rank.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "graph/compile.h"

namespace penstock {

// Groups are numbers of c10d_groups.h.
struct PlaneOptions {
  // By parameter of which planes have different parts: the group of these planes.
  std::map<std::string, std::int64_t> divided;
  // The planes that compute gradients from different parts of a sequence; 0: there is one.
  std::int64_t context = 0;
};

class PlaneSums {
 public:
  // `names` are the stage's parameters.
  PlaneSums(const PlaneOptions& options, std::span<const std::string> names);

  // Learns which sums a program leaves to AddPartial. Throws std::runtime_error if another program
  // of the stage leaves other ones.
  void AddProgram(const StageProgram& program);
  // Adds what the planes' programs have computed of the gradients (GradientSum), once per step: one
  // collective per group, kind of sum and dtype. By parameter.
  void AddPartial(std::span<const at::Tensor> gradients) const;
  // Replaces the squared norms of parts by those of whole parameters. By parameter.
  void AddNorms(std::span<double> squared) const;
  // Replaces gradients by the mean over parts of a sequence, once per step.
  void AverageGradients(const at::Tensor& gradients);
  // The gradients of the next step are other ones.
  void EndStep() { is_averaged_ = false; }

 private:
  using Sum = std::pair<std::int64_t, bool>;  // the group, and whether it is a mean

  const std::int64_t context_;
  bool is_averaged_ = false;
  const std::vector<std::string> names_;
  std::map<std::string, std::vector<Sum>> sums_;              // by parameter with a gradient
  std::map<std::int64_t, std::vector<std::size_t>> divided_;  // by group: parameters
};

}  // namespace penstock
