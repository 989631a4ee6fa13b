#include "checkpoint/shard_plan.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace penstock {
namespace {

// The offers of one tensor, as chosen pieces that overlap.
struct Offers {
  PlannedTensor tensor;
  // By box; first those of the flattened tensor.
  std::vector<std::pair<Layout, std::vector<ChosenPiece>>> boxes;

  std::vector<ChosenPiece>& Of(const OfferedPiece& offered) {
    const std::optional<Box>& box = offered.layout.box();
    const auto found =
        std::ranges::find(boxes, box, [](const auto& each) { return each.first.box(); });
    if (found != boxes.end()) return found->second;
    return boxes
        .emplace(box ? boxes.end() : boxes.begin(), offered.layout, std::vector<ChosenPiece>())
        ->second;
  }
};

// Goes through the pieces in the order of their first element and takes what each adds.
Status Cover(const std::string& name, std::uint64_t elements, std::vector<ChosenPiece> pieces,
             std::vector<ChosenPiece>& chosen) {
  std::ranges::sort(pieces, {}, [](const ChosenPiece& piece) {
    return std::tuple(piece.begin, ~piece.end, piece.process, piece.offered);
  });
  std::uint64_t next = 0;  // the first element that is not chosen yet
  for (ChosenPiece piece : pieces) {
    if (piece.begin > next) break;
    if (piece.end <= next) continue;
    piece.begin = next;
    next = piece.end;
    chosen.push_back(piece);
  }
  if (next == elements) return {};
  return InvalidArgument("no rank saves the elements of '{}' from {} on; it has {}", name, next,
                         elements);
}

Status Choose(const std::string& name, Offers& offers) {
  std::vector<ChosenPiece>& chosen = offers.tensor.pieces;
  const auto cover = [&](const auto& box) {
    return Cover(name, static_cast<std::uint64_t>(box.first.elements()), box.second, chosen);
  };
  if (!offers.boxes.front().first.box()) return cover(offers.boxes.front());
  std::ranges::sort(offers.boxes, {}, [](const auto& each) {
    return std::pair(each.first.box()->dimension, each.first.box()->first);
  });
  const std::int64_t dimension = offers.boxes.front().first.box()->dimension;
  const std::int64_t blocks = offers.boxes.front().first.box()->blocks;
  std::int64_t next = 0;  // the first index of the dimension that is not chosen yet
  for (const auto& box : offers.boxes) {
    const Box& own = *box.first.box();
    if (own.dimension != dimension || own.blocks != blocks || own.first != next) {
      return InvalidArgument(
          "ranks save '{}' in boxes that do not divide it: indices {} of dimension {} come after "
          "{} of dimension {}",
          name, own.first, own.dimension, next, dimension);
    }
    PENSTOCK_TRY_STATUS(cover(box));
    next += own.count;
  }
  const std::int64_t size = offers.tensor.shape[static_cast<std::size_t>(dimension)] / blocks;
  if (next == size) return {};
  return InvalidArgument("no rank saves '{}' from index {} of dimension {} on; it has {}", name,
                         next, dimension, size);
}

}  // namespace

Result<ShardPlan> PlanShards(const std::vector<std::vector<OfferedPiece>>& offers) {
  std::map<std::string, Offers> by_name;
  for (int process = 0; process < std::ssize(offers); ++process) {
    for (std::size_t i = 0; i < offers[process].size(); ++i) {
      const OfferedPiece& offered = offers[process][i];
      Offers& same = by_name[offered.name];
      if (same.boxes.empty()) same.tensor = {offered.dtype, offered.layout.shape(), {}};
      if (same.tensor.dtype != offered.dtype || same.tensor.shape != offered.layout.shape()) {
        return InvalidArgument("ranks save '{}' with different dtypes or shapes", offered.name);
      }
      const auto begin = static_cast<std::uint64_t>(offered.layout.begin());
      same.Of(offered).push_back(
          {process, i, begin, begin, begin + offered.count, offered.layout.box()});
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
