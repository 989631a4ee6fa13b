#include "train/shards/shard_collectives.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>

#include <stdexcept>
#include <utility>

#include "train/memory_of.h"

namespace penstock {
namespace {

// Returns a copy of the shard in the order of the sequence, with zeros between parameters.
at::Tensor CopyShard(const Shards& shards, int shard, const std::vector<at::Tensor>& tensors) {
  const at::NoGradGuard no_gradients;
  at::Tensor copy =
      at::zeros({shards.shard_elements()}, tensors.front().options().requires_grad(false));
  for (const Shards::ParameterPiece& piece : shards.pieces(shard)) {
    copy.narrow(0, shards.InShard(piece), piece.size())
        .copy_(tensors[piece.parameter].flatten().narrow(0, piece.begin, piece.size()));
  }
  return copy;
}

}  // namespace

ShardCollectives::ShardCollectives(const Shards& shards, int shard, Kept kept, Tensors tensors,
                                   const StageProgram& program, std::shared_ptr<RankGroup> group,
                                   RankShards& rank)
    : end_(std::move(group)), rank_(rank) {
  PENSTOCK_CHECK(end_.group().ranks() == shards.shards() && end_.group().rank() == shard,
                 "shard {} of {} at rank {} of {}", shard, shards.shards(), end_.group().rank(),
                 end_.group().ranks());
  const bool cast = tensors.working.front().scalar_type() != tensors.masters.front().scalar_type();
  GraphBinding binding;
  binding.device = tensors.masters.front().device();
  if (kept.gradients) {
    gradients_.emplace(shards, std::move(tensors.gradients));
    binding.unreduced_gradients = gradients_->sequence();
    binding.gradient_shard = tensors.gradient_shard;
    reduced_bytes_ = static_cast<std::int64_t>(tensors.gradient_shard.nbytes());
    reduce_grad_.emplace(program.reduce_grad, binding, end_);
  }
  if (!kept.weights && !cast) return;
  masters_ = CopyShard(shards, shard, tensors.masters);
  working_ = masters_;
  if (kept.weights && cast) working_ = masters_.to(tensors.working.front().scalar_type());
  if (kept.weights) {
    gathered_.emplace(shards, std::move(tensors.working));
    binding.weight_shard = working_;
    unshard_.emplace(program.unshard, binding, end_);
  }
  if (cast) all_masters_.emplace(shards, std::move(tensors.masters));
}

ShardCollectives::~ShardCollectives() {
  if (rank_.reducing == this) rank_.reducing = nullptr;
  // Buffers in flight must outlive their collectives, which end with the group.
  const Error reason{ErrorCode::kUnavailable, "a stage ended during a collective"};
  for (auto* program : {&unshard_, &reduce_grad_}) {
    if (!*program || !(*program)->in_flight()) continue;
    Abort(reason);
    Wait(**program);
  }
  if (!gathering_masters_) return;
  Abort(reason);
  static_cast<void>(end_.group().Wait(*gathering_masters_));
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

std::vector<at::Tensor>* ShardCollectives::Wait(CollectiveProgram& program) {
  try {
    return &program.Wait();
  } catch (const std::exception&) {
    if (!aborted_.load()) throw;
    return nullptr;
  }
}

void ShardCollectives::Unshard() {
  rank_.weights.Add(gathered_->bytes());
  unshard_->Start();
}

bool ShardCollectives::AwaitWeights() {
  if (!unshard_ || !unshard_->in_flight()) return true;
  std::vector<at::Tensor>* const outputs = Wait(*unshard_);
  if (outputs != nullptr) gathered_->Use(std::move(outputs->front()));
  return outputs != nullptr;
}

void ShardCollectives::Reshard() {
  if (!gathered_ || !AwaitWeights() || !gathered_->exist()) return;
  gathered_->Free();
  rank_.weights.Free(gathered_->bytes());
}

void ShardCollectives::BeginGradients() {
  if (!gradients_ || gradients_->exist()) return;
  rank_.gradients.Add(gradients_->bytes());
  gradients_->Allocate();
  at::Tensor(gradients_->sequence()).zero_();
}

const at::Tensor& ShardCollectives::WholeGradients() {
  BeginGradients();
  return gradients_->sequence();
}

void ShardCollectives::StartReduction() {
  if (rank_.reducing != nullptr && !rank_.reducing->FinishReduction()) return;
  BeginGradients();
  rank_.gradients.Add(reduced_bytes_);
  reduce_grad_->Start();
  rank_.reducing = this;
}

bool ShardCollectives::FinishReduction() {
  if (!reduce_grad_ || !reduce_grad_->in_flight()) return true;
  rank_.reducing = nullptr;
  if (Wait(*reduce_grad_) == nullptr) return false;
  gradients_->Free();
  rank_.gradients.Free(gradients_->bytes() + reduced_bytes_);
  return true;
}

void ShardCollectives::StartGather() {
  if (!masters_.defined()) return;
  FullTensors& all = all_masters();
  if (!all.exist()) all.Allocate();
  auto started = end_.group().AllGather(MemoryOf(masters_), MemoryOf(all.sequence()));
  if (!started) throw std::runtime_error(started.error().line());
  gathering_masters_ = *started;
}

void ShardCollectives::FinishGather(bool keep) {
  if (!masters_.defined()) return;
  const Status status = end_.group().Wait(*std::exchange(gathering_masters_, std::nullopt));
  if (!status && !aborted_.load()) throw std::runtime_error(status.error().line());
  if (!keep) all_masters().Free();
}

void ShardCollectives::DropGathered() {
  if (masters_.defined() && all_masters().exist()) all_masters().Free();
}

void ShardCollectives::Abort(const Error& reason) {
  aborted_.store(true);
  end_.group().Abort(reason);
}

}  // namespace penstock
