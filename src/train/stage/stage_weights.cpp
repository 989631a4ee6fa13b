#include "train/stage/stage_weights.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <atomic>
#include <stdexcept>
#include <utility>

#include "base/index.h"
#include "train/stage/gradient_norm.h"

namespace penstock {
namespace {

// Returns a tensor with the same memory but another storage. When the storage is pointed to other
// memory, its views follow.
at::Tensor WithOwnStorage(const at::Tensor& tensor) {
  return at::from_blob(tensor.mutable_data_ptr(), tensor.sizes(), tensor.strides(),
                       tensor.options().requires_grad(false));
}

// Returns `kept`, or a new tensor in its place if a reader still holds it.
at::Tensor& Unread(std::int64_t elements, at::Tensor& kept) {
  if (!kept.defined() || kept.use_count() > 1) kept = at::empty({elements}, at::kFloat);
  std::atomic_thread_fence(std::memory_order_acquire);
  return kept;
}

Message MessageOf(const at::Tensor& tensor) {
  auto* const owner = new at::Tensor(tensor);
  return Message(tensor.mutable_data_ptr(), tensor.nbytes(), owner,
                 [](void* held) { delete static_cast<at::Tensor*>(held); });
}

// Returns the elements from `begin` on in the order of memory.
at::Tensor InMemory(const at::Tensor& tensor, std::int64_t begin, std::int64_t size) {
  return tensor.as_strided({size}, {1}, tensor.storage_offset() + begin);
}

void CheckBytes(const Message& message, std::int64_t elements, const char* what) {
  if (message.bytes() == Index(elements) * sizeof(float)) return;
  throw std::runtime_error(fmt::format("received {} bytes of {} from a replica, not {}",
                                       message.bytes(), what, Index(elements) * sizeof(float)));
}

Shards ShardsOf(std::span<const NamedTensor> parameters, const TorchStageOptions& options) {
  std::vector<std::int64_t> elements;
  std::vector<bool> shared;
  for (const NamedTensor& parameter : parameters) {
    elements.push_back(parameter.tensor.numel());
    shared.push_back(std::ranges::any_of(
        options.shared, [&](const auto& one) { return one && one->parameter == parameter.name; }));
  }
  return Shards(elements, shared, options.shards);
}

}  // namespace

StageWeights::StageWeights(std::span<const NamedTensor> working,
                           std::span<const NamedTensor> masters, const TorchStageOptions& options,
                           std::size_t tail)
    : cast_(options.working != nullptr),
      optimizer_(options.optimizer),
      chain_(options.chain),
      older_(options.versions.older),
      shards_(ShardsOf(masters, options)),
      sharded_(options.sharded),
      outgoing_(Index(options.sharded ? options.shards : 1)),
      incoming_(options.replicas),
      tails_(options.replicas, std::vector<float>(tail)) {
  flat_ = at::zeros({shards_.end() + static_cast<std::int64_t>(tail)}, at::kFloat);
  for (std::size_t i = 0; i < working.size(); ++i) {
    const at::Tensor& like = working[i].tensor;
    gradients_.push_back(flat_.as_strided(like.sizes(), like.strides(), shards_.start(i)));
    parameters_.emplace_back(masters[i].name, masters[i].tensor.detach(), gradients_.back());
    newest_.push_back(like.detach());
    values_.push_back(older_.empty() ? newest_.back() : WithOwnStorage(newest_.back()));
    for (auto& version : older_) version.push_back(at::empty_like(newest_.back()));
  }
  for (const auto& shared : options.shared) {
    std::optional<Shared>& own = shared_.emplace_back();
    if (!shared) continue;
    const auto parameter =
        std::find_if(parameters_.begin(), parameters_.end(),
                     [&](const NamedParameter& each) { return each.name == shared->parameter; });
    PENSTOCK_CHECK(parameter != parameters_.end(),
                   "the stage does not have its shared parameter {}", shared->parameter);
    parameter->counts = shared->holder == 0;
    own.emplace();
    own->index = Index(parameter - parameters_.begin());
    own->holder = shared->holder;
    own->incoming.resize(Index(shared->holders));
  }
  ChooseUpdated(options);
}

void StageWeights::ChooseUpdated(const TorchStageOptions& options) {
  if (!sharded_) {
    updated_ = parameters_;
    return;
  }
  PENSTOCK_CHECK(options.shards == options.replicas && older_.empty(), "{} shards", options.shards);
  for (const Shards::Piece& piece : shards_.pieces(chain_)) {
    NamedParameter part = parameters_[piece.parameter];
    PENSTOCK_CHECK(part.value.is_contiguous(), "{} is not contiguous", part.name);
    part.value = InMemory(part.value, piece.begin, piece.size());
    part.gradient = GradientOf(piece);
    part.begin = piece.begin;
    updated_.push_back(std::move(part));
  }
  for (const Shards::Piece& piece : shards_.unsharded()) {
    updated_.push_back(parameters_[piece.parameter]);
    // Only one replica's norm of it counts.
    updated_.back().counts = updated_.back().counts && chain_ == 0;
  }
}

at::Tensor StageWeights::GradientOf(const Shards::Piece& piece) const {
  return flat_.narrow(0, shards_.start(piece.parameter) + piece.begin, piece.size());
}

void StageWeights::Use(std::int64_t version) {
  const auto kept = static_cast<std::int64_t>(older_.size());
  PENSTOCK_CHECK(version >= updates_ - kept && version <= updates_,
                 "version {} of the weights is not available after {} updates", version, updates_);
  const int place = version == updates_ ? -1 : static_cast<int>(version % kept);
  if (place == in_use_) return;
  in_use_ = place;
  const auto& source = place < 0 ? newest_ : older_[place];
  for (std::size_t i = 0; i < values_.size(); ++i) {
    values_[i].storage().unsafeGetStorageImpl()->set_data_ptr_noswap(
        {source[i].mutable_data_ptr(), source[i].device()});
  }
}

std::int64_t StageWeights::VersionBytes() const {
  std::int64_t bytes = 0;
  for (const at::Tensor& value : newest_) bytes += static_cast<std::int64_t>(value.nbytes());
  return bytes * versions();
}

void StageWeights::Update(const TorchStage::Update& update) {
  const at::NoGradGuard no_gradients;
  if (!older_.empty()) {
    auto& stashed = older_[Index(updates_) % older_.size()];
    for (std::size_t i = 0; i < newest_.size(); ++i) stashed[i].copy_(newest_[i]);
  }
  update(updated_);
  ++updates_;
  outgoing_shard_.reset();
  SetWorking();
}

void StageWeights::SetWorking() {
  const at::NoGradGuard no_gradients;
  for (std::size_t i = 0; cast_ && i < parameters_.size(); ++i) {
    newest_[i].copy_(parameters_[i].value);
  }
}

void StageWeights::Clear() {
  flat_.zero_();
  dropped_ = false;
}

void StageWeights::Step(const TorchStage::Update& update) {
  if (!dropped_) Update(update);
  if (dropped_ && optimizer_.skip) optimizer_.skip();
  Clear();
}

void StageWeights::TryStep(const TorchStage::Update& update) {
  const at::NoGradGuard no_gradients;
  PENSTOCK_CHECK(optimizer_.save && older_.empty(), "the stage's steps cannot be rolled back");
  optimizer_.save(updated_);
  Update(update);
}

void StageWeights::CommitStep() { Clear(); }

void StageWeights::RollBackStep() {
  const at::NoGradGuard no_gradients;
  optimizer_.restore();
  --updates_;
  SetWorking();
}

void StageWeights::ScaleGradients(double factor) { flat_.mul_(factor); }

// Adds the norms of a parameter's pieces in the order of the shards, as the ranks do that have one
// shard each.
std::span<const double> StageWeights::SquaredNorms() {
  norms_.assign(parameters_.size(), 0);
  const auto add = [this](const Shards::Piece& piece) {
    norms_[piece.parameter] += SquaredNorm(GradientOf(piece));
  };
  const int first = sharded_ ? chain_ : 0;
  const int last = sharded_ ? chain_ : shards_.shards() - 1;
  for (int shard = first; shard <= last; ++shard) {
    for (const Shards::Piece& piece : shards_.pieces(shard)) add(piece);
  }
  for (const Shards::Piece& piece : shards_.unsharded()) {
    const bool elsewhere = sharded_ && chain_ != 0;
    if (parameters_[piece.parameter].counts && !elsewhere) add(piece);
  }
  return norms_;
}

std::vector<StageWeights::Range> StageWeights::RangesOf(int chain) const {
  const std::int64_t all = flat_.numel();
  if (!sharded_) return {{0, all, 0}};
  const std::int64_t shard = shards_.shard_elements();
  return {{chain * shard, shard, 0}, {shards_.rest(), all - shards_.rest(), shard}};
}

Message StageWeights::Share(int to_chain, std::span<const float> tail) {
  std::copy(tail.begin(), tail.end(), flat_.mutable_data_ptr<float>() + shards_.end());
  const std::vector<Range> ranges = RangesOf(to_chain);
  const std::int64_t elements = ranges.back().in_message + ranges.back().size;
  at::Tensor& outgoing = Unread(elements, outgoing_[sharded_ ? Index(to_chain) : 0]);
  for (const Range& range : ranges) {
    outgoing.narrow(0, range.in_message, range.size)
        .copy_(flat_.narrow(0, range.begin, range.size));
  }
  return MessageOf(outgoing);
}

Message StageWeights::ShareParameter(int parameter) {
  Shared& shared = *shared_[parameter];
  const at::Tensor& gradient = gradients_[shared.index];
  Unread(gradient.numel(), shared.outgoing).copy_(InMemory(gradient, 0, gradient.numel()));
  return MessageOf(shared.outgoing);
}

void StageWeights::TakeParameter(int parameter, int holder, Message gradient) {
  Shared& shared = *shared_[parameter];
  if (gradient.bytes() != gradients_[shared.index].nbytes()) {
    throw std::runtime_error(fmt::format("received {} bytes as the gradient of {}, not {}",
                                         gradient.bytes(), parameters_[shared.index].name,
                                         gradients_[shared.index].nbytes()));
  }
  shared.incoming[holder] = std::move(gradient);
}

// Every stage adds in the order of the holders, so that all arrive at the same sum.
void StageWeights::AddParameter(int parameter) {
  const at::NoGradGuard no_gradients;
  Shared& shared = *shared_[parameter];
  at::Tensor& own = gradients_[shared.index];
  const auto of_holder = [&](std::size_t holder) {
    if (static_cast<int>(holder) == shared.holder) return own;
    return at::from_blob(shared.incoming[holder].data(), own.sizes(), own.options());
  };
  at::Tensor sum = of_holder(0).add(of_holder(1));
  for (std::size_t holder = 2; holder < shared.incoming.size(); ++holder) {
    sum.add_(of_holder(holder));
  }
  own.copy_(sum);
  for (Message& message : shared.incoming) message = {};
}

void StageWeights::Take(int chain, Message gradients) {
  const Range last = RangesOf(chain_).back();
  CheckBytes(gradients, last.in_message + last.size, "gradients");
  incoming_[chain] = std::move(gradients);
}

// Every replica adds in the order of the chains, so that all arrive at the same sum.
void StageWeights::Add() {
  const at::NoGradGuard no_gradients;
  const std::size_t tail = tails_.front().size();
  for (const Range& range : RangesOf(chain_)) {
    at::Tensor own = flat_.narrow(0, range.begin, range.size);
    const auto of_chain = [&](std::size_t chain) {
      if (static_cast<int>(chain) == chain_) return own;
      float* const data = static_cast<float*>(incoming_[chain].data()) + range.in_message;
      return at::from_blob(data, {range.size}, at::kFloat);
    };
    at::Tensor sum = of_chain(0).add(of_chain(1));
    for (std::size_t chain = 2; chain < incoming_.size(); ++chain) sum.add_(of_chain(chain));
    // The tail is at the end of the last range.
    for (std::size_t chain = 0; chain < incoming_.size(); ++chain) {
      const float* const end = of_chain(chain).const_data_ptr<float>() + range.size;
      if (range.begin + range.size == flat_.numel()) {
        std::copy(end - tail, end, tails_[chain].begin());
      }
    }
    own.copy_(sum);
  }
  for (Message& message : incoming_) message = {};
}

Message StageWeights::ShareShard() {
  const at::NoGradGuard no_gradients;
  if (!outgoing_shard_.defined()) {
    outgoing_shard_ = at::empty({shards_.shard_elements()}, at::kFloat);
    std::int64_t at = 0;
    for (const Shards::Piece& piece : shards_.pieces(chain_)) {
      outgoing_shard_.narrow(0, at, piece.size())
          .copy_(InMemory(parameters_[piece.parameter].value, piece.begin, piece.size()));
      at += piece.size();
    }
  }
  return MessageOf(outgoing_shard_);
}

void StageWeights::TakeShard(int chain, const Message& parameters) {
  const at::NoGradGuard no_gradients;
  CheckBytes(parameters, shards_.shard_elements(), "parameters");
  auto* from = static_cast<float*>(parameters.data());
  for (const Shards::Piece& piece : shards_.pieces(chain)) {
    const at::Tensor values = at::from_blob(from, {piece.size()}, at::kFloat);
    const at::Tensor& master = parameters_[piece.parameter].value;
    InMemory(master, piece.begin, piece.size()).copy_(values);
    if (cast_) InMemory(newest_[piece.parameter], piece.begin, piece.size()).copy_(values);
    from += piece.size();
  }
}

}  // namespace penstock
