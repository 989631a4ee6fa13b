// Sums of gradients and their norms as replicas compute them.
#pragma once

#include <vector>

#include "train/shards/shards.h"
#include "train/stage/gradient_norm.h"
#include "train/stage/torch_stage.h"

namespace penstock {

// Returns the sum in the order of the parts, rounded to their dtype once.
inline at::Tensor SumInFloat(const std::vector<at::Tensor>& parts) {
  at::Tensor sum = parts.front().to(at::kFloat, /*non_blocking=*/false, /*copy=*/true);
  for (std::size_t i = 1; i < parts.size(); ++i) sum.add_(parts[i]);
  return sum.to(parts.front().scalar_type());
}

// Returns the squared norms by parameter, each as the sum over its shards. `shared` marks
// parameters that other stages hold too; those in `copies` count elsewhere.
inline std::vector<double> NormsByShard(const std::vector<NamedParameter>& parameters,
                                        const std::vector<bool>& shared,
                                        const std::vector<bool>& copies, int count) {
  std::vector<std::int64_t> elements;
  for (const NamedParameter& parameter : parameters) elements.push_back(parameter.value.numel());
  std::vector<Division> divisions;
  for (const bool each : shared) divisions.push_back(each ? Division::kWhole : Division::kShards);
  const Shards shards(elements, divisions, count);
  std::vector<double> norms(parameters.size());
  const auto add = [&](const Shards::ParameterPiece& piece) {
    const at::Tensor flat = parameters[piece.parameter].gradient.flatten();
    norms[piece.parameter] += SquaredNorm(flat.narrow(0, piece.begin, piece.size()));
  };
  for (int shard = 0; shard < count; ++shard) {
    for (const Shards::ParameterPiece& piece : shards.pieces(shard)) {
      if (parameters[piece.parameter].counts) add(piece);
    }
  }
  for (const Shards::ParameterPiece& piece : shards.unsharded()) {
    if (!copies[piece.parameter]) add(piece);
  }
  return norms;
}

}  // namespace penstock
