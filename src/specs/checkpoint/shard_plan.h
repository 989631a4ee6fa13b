// Decides which process writes which elements of a checkpoint.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "checkpoint/layout.h"
#include "checkpoint/manifest.h"

namespace penstock {

// `count` elements of a tensor that a process can write.
struct OfferedPiece {
  std::string name;
  std::string dtype;
  Layout layout;
  std::uint64_t count = 0;
};

// Elements that a process writes: a part of one of its offered pieces. `begin` and `end` count
// elements of the box, or else of the flattened tensor.
struct ChosenPiece {
  int process = 0;
  std::size_t offered = 0;          // index among the pieces that the process offers
  std::uint64_t offered_begin = 0;  // of that piece
  std::uint64_t begin = 0, end = 0;
  std::optional<Box> box = {};
};

struct PlannedTensor {
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::vector<ChosenPiece> pieces;  // in order; together they are the whole tensor
};

// By name. The same for the same offers.
using ShardPlan = std::map<std::string, PlannedTensor>;

// Chooses each element of each tensor once. If several pieces contain it, prefers the one that
// begins first, then the longest, then the lowest process's; pieces of the flattened tensor before
// boxes. `offers` are the pieces of each process. Errors: kInvalidArgument if no process offers an
// element, if offers of a tensor have different dtypes or shapes, or if boxes of it overlap.
Result<ShardPlan> PlanShards(const std::vector<std::vector<OfferedPiece>>& offers);

// Returns the name of a process's shard.
std::string ShardName(int process, int processes);

}  // namespace penstock
