#include "checkpoint/shard_plan.h"

#include <algorithm>
#include <tuple>

namespace penstock {
namespace {

// The offers of one tensor, as chosen pieces that overlap.
struct Offers {
  PlannedTensor tensor;
  std::uint64_t elements = 0;
  std::vector<ChosenPiece> pieces;
};

std::uint64_t CountElements(const std::vector<std::int64_t>& shape) {
  std::uint64_t elements = 1;
  for (const std::int64_t size : shape) elements *= static_cast<std::uint64_t>(size);
  return elements;
}

// Goes through the pieces in the order of their first element and takes what each adds.
Status Choose(const std::string& name, Offers& offers) {
  std::ranges::sort(offers.pieces, {}, [](const ChosenPiece& piece) {
    return std::tuple(piece.begin, ~piece.end, piece.process, piece.offered);
  });
  std::uint64_t next = 0;  // the first element that is not chosen yet
  for (ChosenPiece piece : offers.pieces) {
    if (piece.begin > next) break;
    if (piece.end <= next) continue;
    piece.begin = next;
    next = piece.end;
    offers.tensor.pieces.push_back(piece);
  }
  if (next == offers.elements) return {};
  return InvalidArgument("no rank saves the elements of '{}' from {} on; it has {}", name, next,
                         offers.elements);
}

}  // namespace

Result<ShardPlan> PlanShards(const std::vector<std::vector<OfferedPiece>>& offers) {
  std::map<std::string, Offers> by_name;
  for (int process = 0; process < std::ssize(offers); ++process) {
    for (std::size_t i = 0; i < offers[process].size(); ++i) {
      const OfferedPiece& offered = offers[process][i];
      Offers& same = by_name[offered.name];
      if (same.pieces.empty()) {
        same.tensor = {offered.dtype, offered.shape, {}};
        same.elements = CountElements(offered.shape);
      }
      if (same.tensor.dtype != offered.dtype || same.tensor.shape != offered.shape) {
        return InvalidArgument("ranks save '{}' with different dtypes or shapes", offered.name);
      }
      same.pieces.push_back({process, i, offered.begin, offered.begin, offered.end});
    }
  }
  ShardPlan plan;
  for (auto& [name, same] : by_name) {
    PENSTOCK_TRY_STATUS(Choose(name, same));
    plan.emplace(name, std::move(same.tensor));
  }
  return plan;
}

std::string ShardName(int process, int processes) {
  return fmt::format("shard-{}-of-{}.safetensors", process + 1, processes);
}

}  // namespace penstock
