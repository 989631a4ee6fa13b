#include "train/shards/tensor_groups.h"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <utility>

#include "base/index.h"
#include "collective/local_group.h"
#include "runtime/collectives/rank_groups.h"
#include "train/memory_of.h"
#include "train/message/device_group_memory.h"

namespace penstock {
namespace {

ElementType SummedTypeOf(const at::Tensor& x) {
  if (x.scalar_type() == at::kBFloat16) return ElementType::kBfloat16;
  return x.scalar_type() == at::kDouble ? ElementType::kFloat64 : ElementType::kFloat32;
}

}  // namespace

Result<PlaneGroups> MakePlaneGroups(const Mesh& planes, Axis axis, const Schedule& schedule,
                                    const LocalRanks& ranks, c10::Device device) {
  PlaneGroups groups;
  if (planes.size(axis) == 1) return groups;
  RankGroupOptions options;
  options.timeout = kNoTimeout;
  options.memory = GroupMemoryOn(device);
  for (int rank = 0; rank < schedule.ranks(); ++rank) {
    auto& of_rank = groups.emplace_back(Index(planes.ranks()));
    if (!ranks.has(rank)) continue;
    for (const std::vector<int>& members : planes.Groups({axis})) {
      options.name = fmt::format("{} ranks of pipeline rank {}",
                                 axis == Axis::kTensor ? "tensor" : "context", rank);
      auto ends = MakeLocalGroup(planes.size(axis), options);
      for (std::size_t i = 0; i < members.size(); ++i) {
        of_rank[Index(members[i])] = std::make_unique<GroupEnd>(std::move(ends[i]));
      }
    }
  }
  return groups;
}

namespace {

at::Tensor SumTo(GroupEnd& group, const at::Tensor& x, const at::Tensor& sum) {
  CollectiveCall call{.kind = CollectiveKind::kAllReduce, .type = SummedTypeOf(x)};
  call.input = {static_cast<const std::byte*>(x.const_data_ptr()), x.nbytes()};
  call.output = MemoryOf(sum);
  return group.Wait(group.Start(call, x, sum));
}

}  // namespace

at::Tensor SumOverGroup(GroupEnd& group, const at::Tensor& x) {
  return SumTo(group, x, at::empty_like(x));
}

void SumInPlace(GroupEnd& group, const at::Tensor& x) { static_cast<void>(SumTo(group, x, x)); }

void SumOverGroup(GroupEnd& group, c10::Device device, std::span<double> numbers) {
  const at::Tensor own =
      at::from_blob(numbers.data(), {std::ssize(numbers)}, at::kDouble).clone().to(device);
  const at::Tensor sum = SumOverGroup(group, own).cpu();
  std::copy_n(sum.const_data_ptr<double>(), numbers.size(), numbers.begin());
}

}  // namespace penstock
