#include "train/stage/stage_weights.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <atomic>
#include <numeric>
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

// Copies `from` to `kept` and returns a message of the copy. The next call reuses `kept` if all
// readers have dropped it, and allocates otherwise.
Message MessageOfCopy(const at::Tensor& from, at::Tensor& kept) {
  if (!kept.defined() || kept.use_count() > 1) {
    kept = at::empty_like(from, from.options(), at::MemoryFormat::Contiguous);
  }
  std::atomic_thread_fence(std::memory_order_acquire);
  kept.copy_(from);
  auto* const owner = new at::Tensor(kept);
  return Message(kept.mutable_data_ptr(), kept.nbytes(), owner,
                 [](void* tensor) { delete static_cast<at::Tensor*>(tensor); });
}

}  // namespace

StageWeights::StageWeights(std::span<const NamedTensor> working,
                           std::span<const NamedTensor> masters, const TorchStageOptions& options,
                           std::size_t tail)
    : cast_(options.working != nullptr),
      optimizer_(options.optimizer),
      chain_(options.chain),
      older_(options.versions.older),
      incoming_(options.replicas),
      tails_(options.replicas, std::vector<float>(tail)) {
  constexpr std::int64_t kAlign = 64;  // elements: a cache line at least
  std::vector<std::int64_t> starts;
  for (const NamedTensor& parameter : working) {
    starts.push_back(flat_size_);
    flat_size_ += (parameter.tensor.numel() + kAlign - 1) / kAlign * kAlign;
  }
  flat_ = at::zeros({flat_size_ + static_cast<std::int64_t>(tail)}, at::kFloat);
  for (std::size_t i = 0; i < working.size(); ++i) {
    const at::Tensor& like = working[i].tensor;
    gradients_.push_back(flat_.as_strided(like.sizes(), like.strides(), starts[i]));
    parameters_.push_back({masters[i].name, masters[i].tensor.detach(), gradients_.back()});
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
  update(parameters_);
  ++updates_;
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
  optimizer_.save(parameters_);
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

std::span<const double> StageWeights::SquaredNorms() {
  norms_.clear();
  for (const NamedParameter& parameter : parameters_) {
    norms_.push_back(parameter.counts ? SquaredNorm(parameter.gradient) : 0);
  }
  return norms_;
}

Message StageWeights::Share(std::span<const float> tail) {
  std::copy(tail.begin(), tail.end(), flat_.mutable_data_ptr<float>() + flat_size_);
  return MessageOfCopy(flat_, outgoing_);
}

Message StageWeights::ShareParameter(int parameter) {
  Shared& shared = *shared_[parameter];
  return MessageOfCopy(gradients_[shared.index], shared.outgoing);
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
  if (gradients.bytes() != flat_.nbytes()) {
    throw std::runtime_error(fmt::format("received {} bytes of gradients from a replica, not {}",
                                         gradients.bytes(), flat_.nbytes()));
  }
  incoming_[chain] = std::move(gradients);
}

// Every replica adds in the order of the chains, so that all arrive at the same sum.
void StageWeights::Add() {
  const at::NoGradGuard no_gradients;
  const auto of_chain = [this](std::size_t chain) {
    if (static_cast<int>(chain) == chain_) return flat_;
    return at::from_blob(incoming_[chain].data(), flat_.sizes(), flat_.options());
  };
  at::Tensor sum = of_chain(0);
  for (std::size_t chain = 1; chain < incoming_.size(); ++chain) {
    sum = chain == 1 ? sum.add(of_chain(chain)) : sum.add_(of_chain(chain));
  }
  for (std::size_t chain = 0; chain < incoming_.size(); ++chain) {
    const float* const from = of_chain(chain).const_data_ptr<float>() + flat_size_;
    std::copy_n(from, tails_[chain].size(), tails_[chain].begin());
    if (static_cast<int>(chain) != chain_) incoming_[chain] = {};
  }
  flat_.copy_(sum);
}

}  // namespace penstock
