#include "train/shards/shard_collectives.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>

#include <stdexcept>
#include <utility>

#include "base/index.h"

namespace penstock {
namespace {

std::span<std::byte> BytesOf(const at::Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.mutable_data_ptr()), tensor.nbytes()};
}

// Returns a copy of the shard in the order of the sequence, with zeros between parameters.
at::Tensor CopyShard(const Shards& shards, int shard, const std::vector<at::Tensor>& tensors) {
  const at::NoGradGuard no_gradients;
  at::Tensor copy = at::zeros({shards.shard_elements()}, tensors.front().scalar_type());
  for (const Shards::Piece& piece : shards.pieces(shard)) {
    copy.narrow(0, shards.InShard(piece), piece.size())
        .copy_(tensors[piece.parameter].flatten().narrow(0, piece.begin, piece.size()));
  }
  return copy;
}

}  // namespace

ShardCollectives::ShardCollectives(const Shards& shards, int shard, Kept kept, Tensors tensors,
                                   std::shared_ptr<RankGroup> group, RankShards& rank)
    : group_(std::move(group)), rank_(rank) {
  PENSTOCK_CHECK(group_->ranks() == shards.shards() && group_->rank() == shard,
                 "shard {} of {} at rank {} of {}", shard, shards.shards(), group_->rank(),
                 group_->ranks());
  const bool cast = tensors.working.front().scalar_type() != tensors.masters.front().scalar_type();
  if (kept.gradients) gradients_.emplace(shards, std::move(tensors.gradients));
  if (!kept.weights && !cast) return;
  masters_ = CopyShard(shards, shard, tensors.masters);
  working_ = masters_;
  if (kept.weights && cast) working_ = masters_.to(tensors.working.front().scalar_type());
  if (kept.weights) gathered_.emplace(shards, std::move(tensors.working));
  if (cast) all_masters_.emplace(shards, std::move(tensors.masters));
}

ShardCollectives::~ShardCollectives() {
  if (rank_.reducing == this) rank_.reducing = nullptr;
  // Buffers in flight must outlive their collectives, which end with the group.
  if (gathering_ || reducing_) {
    Abort({ErrorCode::kUnavailable, "a stage ended during a collective"});
    static_cast<void>(Wait(gathering_) && Wait(reducing_));
  }
}

std::int64_t ShardCollectives::shard_bytes() const {
  if (!masters_.defined()) return 0;
  const std::size_t cast = working_.is_same(masters_) ? 0 : working_.nbytes();
  return static_cast<std::int64_t>(masters_.nbytes() + cast);
}

void ShardCollectives::SetWorking() {
  if (!masters_.defined() || working_.is_same(masters_)) return;
  const at::NoGradGuard no_gradients;
  working_.copy_(masters_);
}

void ShardCollectives::StartAllGather(const at::Tensor& shard, const at::Tensor& all,
                                      Ticket& ticket) {
  auto started = group_->AllGather(BytesOf(shard), BytesOf(all));
  if (!started) throw std::runtime_error(started.error().message);
  ticket = *started;
}

bool ShardCollectives::Wait(Ticket& ticket) {
  if (!ticket) return true;
  const Status status = group_->Wait(*std::exchange(ticket, std::nullopt));
  if (status) return true;
  if (aborted_.load()) return false;
  throw std::runtime_error(status.error().message);
}

void ShardCollectives::Unshard() {
  rank_.weights.Add(gathered_->bytes());
  StartAllGather(working_, gathered_->Allocate(), gathering_);
}

bool ShardCollectives::AwaitWeights() { return Wait(gathering_); }

void ShardCollectives::Reshard() {
  if (!gathered_ || !gathered_->exist()) return;
  static_cast<void>(AwaitWeights());
  gathered_->Free();
  rank_.weights.Free(gathered_->bytes());
}

void ShardCollectives::BeginGradients() {
  if (!gradients_ || gradients_->exist()) return;
  rank_.gradients.Add(gradients_->bytes());
  at::Tensor(gradients_->Allocate()).zero_();
}

void ShardCollectives::StartReduction(const at::Tensor& shard) {
  if (rank_.reducing != nullptr && !rank_.reducing->FinishReduction()) return;
  BeginGradients();
  auto started =
      group_->ReduceScatter(BytesOf(gradients_->buffer()), BytesOf(shard), ElementType::kFloat32);
  if (!started) throw std::runtime_error(started.error().message);
  reducing_ = *started;
  rank_.reducing = this;
}

bool ShardCollectives::FinishReduction() {
  if (!reducing_) return true;
  rank_.reducing = nullptr;
  if (!Wait(reducing_)) return false;
  gradients_->Free();
  rank_.gradients.Free(gradients_->bytes());
  return true;
}

void ShardCollectives::StartGather() {
  if (!masters_.defined()) return;
  FullTensors& all = all_masters_ ? *all_masters_ : *gathered_;
  StartAllGather(masters_, all.exist() ? all.buffer() : all.Allocate(), gathering_);
}

void ShardCollectives::FinishGather(bool keep) {
  if (!masters_.defined()) return;
  FullTensors& all = all_masters_ ? *all_masters_ : *gathered_;
  static_cast<void>(Wait(gathering_));
  if (!keep) all.Free();
}

void ShardCollectives::Abort(const Error& reason) {
  aborted_.store(true);
  group_->Abort(reason);
}

}  // namespace penstock
