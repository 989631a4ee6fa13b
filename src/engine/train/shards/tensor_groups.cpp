#include "train/shards/tensor_groups.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/from_blob.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <utility>

#include "base/index.h"
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

Result<PlaneGroups> MakePlaneGroups(const Mesh& mesh, Axis axis, const LocalRanks& ranks,
                                    ProcessGroup* processes, c10::Device device,
                                    std::optional<LinkSpeed> link) {
  PlaneGroups groups;
  if (mesh.size(axis) == 1) return groups;
  std::vector<RankGroupMembers> members;
  for (std::vector<int>& group : mesh.Groups({axis})) {
    std::string name = fmt::format("ranks {}", fmt::join(group, ", "));
    members.push_back({std::move(name), std::move(group), GroupMemoryOn(device)});
  }
  PENSTOCK_TRY(std::vector<RankGroupEnds> made,
               MakeRankGroups(members, ranks, processes, kNoTimeout, link));
  groups.resize(Index(mesh.ranks()));
  for (std::size_t i = 0; i < members.size(); ++i) {
    for (std::size_t place = 0; place < members[i].ranks.size(); ++place) {
      std::unique_ptr<RankGroup>& end = made[i][place];
      if (end == nullptr) continue;
      groups[Index(members[i].ranks[place])] = std::make_unique<GroupEnd>(std::move(end));
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

RankGroup::Ticket StartGather(GroupEnd& group, const at::Tensor& x) {
  const at::Tensor own = x.contiguous();
  std::vector<std::int64_t> shape = x.sizes().vec();
  shape.insert(shape.begin(), group.group().ranks());
  const at::Tensor all = at::empty(shape, x.options());
  CollectiveCall call{.kind = CollectiveKind::kAllGather};
  call.input = {static_cast<const std::byte*>(own.const_data_ptr()), own.nbytes()};
  call.output = MemoryOf(all);
  return group.Start(call, own, all);
}

void SumOverGroup(GroupEnd& group, c10::Device device, std::span<double> numbers) {
  const at::Tensor own =
      at::from_blob(numbers.data(), {std::ssize(numbers)}, at::kDouble).clone().to(device);
  const at::Tensor sum = SumOverGroup(group, own).cpu();
  std::copy_n(sum.const_data_ptr<double>(), numbers.size(), numbers.begin());
}

}  // namespace penstock
