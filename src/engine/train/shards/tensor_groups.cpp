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

Result<TensorGroups> MakeTensorGroups(const Schedule& schedule, const ParallelConfig& parallel,
                                      const LocalRanks& ranks, c10::Device device) {
  TensorGroups groups;
  if (parallel.tensor == 1) return groups;
  RankGroupOptions options;
  options.timeout = kNoTimeout;
  options.memory = GroupMemoryOn(device);
  PENSTOCK_TRY(const std::optional<LinkSpeed> link, LinkOf(parallel));
  for (int rank = 0; rank < schedule.ranks(); ++rank) {
    auto& group = groups.emplace_back(Index(parallel.tensor));
    if (!ranks.has(rank)) continue;
    options.name = fmt::format("tensor ranks of pipeline rank {}", rank);
    auto ends = MakeLocalGroup(parallel.tensor, options, link);
    for (std::size_t plane = 0; plane < ends.size(); ++plane) {
      group[plane] = std::make_unique<GroupEnd>(std::move(ends[plane]));
    }
  }
  return groups;
}

at::Tensor SumOverGroup(GroupEnd& group, const at::Tensor& x) {
  const at::Tensor sum = at::empty_like(x);
  CollectiveCall call{.kind = CollectiveKind::kAllReduce, .type = SummedTypeOf(x)};
  call.input = {static_cast<const std::byte*>(x.const_data_ptr()), x.nbytes()};
  call.output = MemoryOf(sum);
  return group.Wait(group.Start(call, x, sum));
}

void SumOverGroup(GroupEnd& group, c10::Device device, std::span<double> numbers) {
  const at::Tensor own =
      at::from_blob(numbers.data(), {std::ssize(numbers)}, at::kDouble).clone().to(device);
  const at::Tensor sum = SumOverGroup(group, own).cpu();
  std::copy_n(sum.const_data_ptr<double>(), numbers.size(), numbers.begin());
}

}  // namespace penstock
