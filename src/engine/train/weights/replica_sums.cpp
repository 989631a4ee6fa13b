#include "train/weights/replica_sums.h"

#include <array>
#include <utility>

#include "base/index.h"
#include "train/weights/exchanged_tensors.h"

namespace penstock {

ReplicaSums::ReplicaSums(const ReplicaDivision& division, const Shards& shards,
                         const GradientMemory& gradients, const StepLosses& losses)
    : division_(division),
      shards_(shards),
      gradients_(gradients),
      losses_(losses),
      outgoing_(division.replicas),
      incoming_(division.replicas) {
  for (int chain = 0; chain < division.replicas; ++chain) {
    losses_of_.emplace_back(losses.size(), losses.values().device());
  }
}

std::vector<ReplicaSums::Range> ReplicaSums::RangesOf(int chain, int from) const {
  const std::int64_t all = gradients_.flat().numel();
  if (division_.zero == 0) return {{0, all, 0}};
  const std::int64_t shard = shards_.shard_elements();
  std::vector<Range> ranges;
  const auto add = [&](std::int64_t begin, std::int64_t end) {
    if (begin == end) return;  // the beginning of a range identifies it
    ranges.push_back({begin, end - begin, ElementsOf(ranges)});
  };
  if (division_.zero == 1) {
    add(division_.ShardOf(chain) * shard, (division_.ShardOf(chain) + 1) * shard);
  } else if (division_.per_shard > 1 && division_.ShardOf(chain) == division_.ShardOf(from)) {
    add(0, shard);  // REDUCE_GRAD has added the replicas of the other shards
  }
  const std::int64_t experts =
      shards_.has_experts() ? gradients_.InFlat(shards_.experts_begin()) : all;
  add(gradients_.InFlat(shards_.rest()), experts);
  if (division_.HaveSameExperts(chain, from)) add(experts, all);
  return ranges;
}

Message ReplicaSums::Share(int to_chain) {
  const std::vector<Range> ranges = RangesOf(to_chain, division_.chain);
  const at::Tensor& flat = gradients_.flat();
  at::Tensor& outgoing = Unread(ElementsOf(ranges), flat.options(),
                                outgoing_[division_.zero > 0 ? Index(to_chain) : 0]);
  for (const Range& range : ranges) {
    outgoing.narrow(0, range.in_message, range.size).copy_(flat.narrow(0, range.begin, range.size));
  }
  std::array<at::Tensor, 2> sent = {outgoing, losses_.values().clone()};
  return ToMessage(sent);
}

void ReplicaSums::Take(int chain, Message gradients) {
  const at::Tensor& flat = gradients_.flat();
  const std::array types = {
      ContiguousType(flat.scalar_type(), {ElementsOf(RangesOf(division_.chain, chain))}),
      ContiguousType(at::kFloat, {static_cast<std::int64_t>(losses_.size())})};
  auto [incoming, its_losses] = TensorsOf(std::move(gradients), types, "gradients", flat.device());
  incoming_[chain] = std::move(incoming);
  losses_of_[chain].SetAll(its_losses);
}

// Every replica adds in the order of the chains, so that all arrive at the same sum.
void ReplicaSums::Sum() {
  for (const Range& range : RangesOf(division_.chain, division_.chain)) {
    const at::Tensor own = gradients_.flat().narrow(0, range.begin, range.size);
    std::vector<at::Tensor> parts;  // by chain that has the range
    for (int chain = 0; chain < division_.replicas; ++chain) {
      if (chain == division_.chain) {
        parts.push_back(own);
        continue;
      }
      for (const Range& sent : RangesOf(division_.chain, chain)) {
        if (sent.begin != range.begin) continue;
        parts.push_back(incoming_[chain].narrow(0, sent.in_message, range.size));
      }
    }
    if (parts.size() > 1) SumParts(parts, own);  // else no other replica has these experts
  }
  for (at::Tensor& tensor : incoming_) tensor.reset();
}

}  // namespace penstock
