#include "train/stage/stage_weights.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <stdexcept>
#include <utility>

#include "base/index.h"
#include "collective/element_sum.h"
#include "train/memory_of.h"
#include "train/message/tensor_message.h"
#include "train/stage/gradient_norm.h"
#include "train/stage/stage_spec.h"
#include "train/stage/torch_vocabulary.h"

namespace penstock {
namespace {

// Returns a tensor with the same memory but another storage. When the storage is pointed to other
// memory, its views follow.
at::Tensor WithOwnStorage(const at::Tensor& tensor) {
  return at::for_blob(tensor.mutable_data_ptr(), tensor.sizes())
      .strides(tensor.strides())
      .options(tensor.options().requires_grad(false))
      .target_device(tensor.device())
      .make_tensor();
}

// Returns `kept`, or a new tensor in its place if a reader still holds it. On a device, a reader
// may have dropped what it is still going to read.
at::Tensor& Unread(std::int64_t elements, const at::TensorOptions& options, at::Tensor& kept) {
  if (!kept.defined() || kept.use_count() > 1 || !kept.is_cpu())
    kept = at::empty({elements}, options);
  std::atomic_thread_fence(std::memory_order_acquire);
  return kept;
}

Message MessageOf(at::Tensor tensor) { return ToMessage(std::span(&tensor, 1)); }

// Returns the message's tensors, which have one dimension. Throws std::runtime_error if it has
// others.
template <std::size_t n>
std::array<at::Tensor, n> TensorsOf(Message message, const std::array<TensorType, n>& types,
                                    const char* what, c10::Device device) {
  if (message.bytes() != MessageBytes(types)) {
    throw std::runtime_error(fmt::format("received {} bytes of {} from a replica, not {}",
                                         message.bytes(), what, MessageBytes(types)));
  }
  std::array<at::Tensor, n> tensors;
  FromMessage(std::move(message), types, tensors, device);
  return tensors;
}

// Returns the elements from `begin` on in the order of memory.
at::Tensor InMemory(const at::Tensor& tensor, std::int64_t begin, std::int64_t size) {
  return tensor.as_strided({size}, {1}, tensor.storage_offset() + begin);
}

// Sets `sum`, which may be one of the parts, to their sum. 16-bit parts are added in fp32.
void Sum(const std::vector<at::Tensor>& parts, const at::Tensor& sum) {
  if (!sum.is_cpu()) {
    const at::NoGradGuard no_gradients;
    at::Tensor total = parts.front().to(at::kFloat);
    for (const at::Tensor& part : std::span(parts).subspan(1)) total = at::add(total, part);
    sum.copy_(total.view(sum.sizes()));
    return;
  }
  std::vector<std::span<const std::byte>> memory;
  for (const at::Tensor& part : parts) memory.emplace_back(MemoryOf(part));
  const bool is_bf16 = sum.scalar_type() == at::kBFloat16;
  SumInOrder(memory, MemoryOf(sum), is_bf16 ? ElementType::kBfloat16 : ElementType::kFloat32);
}

}  // namespace

StageWeights::StageWeights(std::span<const NamedTensor> working,
                           std::span<const NamedTensor> masters, const StageProgram& program,
                           const TorchStageOptions& options, const StepLosses& losses)
    : losses_(losses),
      cast_(options.working != nullptr),
      optimizer_(options.optimizer),
      chain_(options.replicas.chain),
      older_(options.schedule.versions.older),
      zero_(options.replicas.zero),
      expert_parts_(options.experts.parts),
      chains_per_shard_(options.replicas.zero == 0
                            ? options.replicas.count
                            : options.replicas.count / options.replicas.shards),
      shards_(ShardsOf(masters, options)),
      rank_(options.rank.shards ? options.rank.shards : std::make_shared<RankShards>()),
      outgoing_(options.replicas.count),
      incoming_(options.replicas.count) {
  const at::ScalarType type = options.gradients.dtype;
  for (int chain = 0; chain < options.replicas.count; ++chain) {
    losses_of_.emplace_back(losses.size(), losses.values().device());
  }
  flat_ = at::zeros({InFlat(shards_.end())}, OnDevice(type));
  rank_->gradients.Add(static_cast<std::int64_t>(flat_.nbytes()));
  for (std::size_t i = 0; i < working.size(); ++i) {
    const at::Tensor& like = working[i].tensor;
    // Gradients in shards get their memory when they exist.
    gradients_.push_back(
        zero_ >= 2 && shards_.sharded(i)
            ? at::empty_like(like, like.options().dtype(type))
            : flat_.as_strided(like.sizes(), like.strides(), InFlat(shards_.start(i))));
    parameters_.emplace_back(masters[i].name, masters[i].tensor.detach(), gradients_.back());
    if (shards_.is_of_experts(i)) {
      std::vector<std::int64_t> shape = like.sizes().vec();
      const Box own = {0, expert_parts_[Index(chain_)] * shape[0], shape[0]};
      shape[0] *= options.experts.ranks;
      parameters_.back().layout = Layout(std::move(shape), own);
    }
    if (options.rank.vocabulary) options.rank.vocabulary->Describe(parameters_.back());
    newest_.push_back(like.detach());
    values_.push_back(older_.empty() ? newest_.back() : WithOwnStorage(newest_.back()));
    for (auto& version : older_) version.push_back(at::empty_like(newest_.back()));
  }
  for (const auto& shared : options.gradients.shared) {
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
  for (std::size_t i = 0; i < parameters_.size() && zero_ == 0; ++i) {
    parameters_[i].has_gradient =
        std::ranges::any_of(shared_, [i](const auto& each) { return each && each->index == i; });
  }
  MakeCollectives(program, options);
  ChooseUpdated(options);
  AddProgram(program);
  rank_->weights.Add(WeightBytes());
}

void StageWeights::MakeCollectives(const StageProgram& program, const TorchStageOptions& options) {
  if (options.replicas.group == nullptr || zero_ == 0) return;
  ShardCollectives::Tensors tensors{newest_, {}, gradients_, {}};
  if (zero_ >= 2) tensors.gradient_shard = flat_.narrow(0, 0, shards_.shard_elements());
  for (const NamedParameter& parameter : parameters_) tensors.masters.push_back(parameter.value);
  collectives_.emplace(shards_, ShardOf(chain_),
                       ShardCollectives::Kept{.weights = zero_ >= 3, .gradients = zero_ >= 2},
                       std::move(tensors), program, options.replicas.group, *rank_);
}

void StageWeights::ChooseUpdated(const TorchStageOptions& options) {
  if (zero_ == 0) {
    for (int shard = 0; shard < shards_.shards() && shards_.shards() > 1; ++shard) {
      for (const Shards::ParameterPiece& piece : shards_.pieces(shard)) {
        parameters_[piece.parameter].parts.push_back({shard, GradientOf(piece)});
      }
    }
    updated_ = parameters_;
    return;
  }
  PENSTOCK_CHECK(options.replicas.shards * chains_per_shard_ == options.replicas.count &&
                     older_.empty() && (zero_ == 1 || collectives_),
                 "{} shards of {} replicas", options.replicas.shards, options.replicas.count);
  for (const Shards::ParameterPiece& piece : shards_.pieces(ShardOf(chain_))) {
    NamedParameter part = parameters_[piece.parameter];
    PENSTOCK_CHECK(part.value.is_contiguous(), "{} is not contiguous", part.name);
    part.value = has_master_shard()
                     ? collectives_->masters().narrow(0, shards_.InShard(piece), piece.size())
                     : InMemory(part.value, piece.begin, piece.size());
    part.gradient = GradientOf(piece);
    part.layout = part.layout.From(piece.begin);
    part.counts = part.counts && counts();
    updated_.push_back(std::move(part));
  }
  for (const Shards::ParameterPiece& piece : shards_.unsharded()) {
    updated_.push_back(parameters_[piece.parameter]);
    updated_.back().counts = CountsUnsharded(piece.parameter);
  }
}

at::Tensor StageWeights::GradientOf(const Shards::ParameterPiece& piece) const {
  return flat_.narrow(0, InFlat(shards_.start(piece.parameter) + piece.begin), piece.size());
}

void StageWeights::AddProgram(const StageProgram& program) {
  for (const StagePiece* const piece : {&program.backward_input, &program.backward_weight}) {
    for (const Bound& bound : piece->graph.bound) {
      if (bound.kind != BoundKind::kGradient) continue;
      for (NamedParameter& updated : updated_) {
        updated.has_gradient = updated.has_gradient || updated.name == bound.name;
      }
    }
  }
}

std::int64_t StageWeights::InFlat(std::int64_t element) const {
  if (zero_ < 2) return element;
  const std::int64_t shard = shards_.shard_elements();
  return element < shards_.rest() ? element % shard : element - shards_.rest() + shard;
}

std::vector<NamedParameter> StageWeights::Restored() const {
  if (!has_master_shard()) return parameters_;
  std::vector<NamedParameter> all = updated_;
  for (std::size_t i = 0; i < newest_.size() && zero_ < 3; ++i) {
    if (shards_.sharded(i)) all.emplace_back(parameters_[i].name, newest_[i], gradients_[i]);
  }
  return all;
}

// Masters that the stage does not compute with count, too.
std::int64_t StageWeights::WeightBytes() const {
  std::int64_t bytes = collectives_ ? collectives_->shard_bytes() : 0;
  for (std::size_t i = 0; i < newest_.size(); ++i) {
    const bool has_working = zero_ < 3 || !shards_.sharded(i);
    const bool has_master = cast_ && !(has_master_shard() && shards_.sharded(i));
    if (has_working) bytes += static_cast<std::int64_t>(newest_[i].nbytes()) * versions();
    if (has_master) bytes += static_cast<std::int64_t>(parameters_[i].value.nbytes());
  }
  return bytes;
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

void StageWeights::Update(const TorchStage::Update& update) {
  const at::NoGradGuard no_gradients;
  if (collectives_ && collectives_->has_gradients()) {
    throw std::runtime_error("the gradients were not reduced: add REDUCE_GRAD to the schedule");
  }
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
  if (collectives_) collectives_->SetWorking();
  for (std::size_t i = 0; cast_ && i < parameters_.size(); ++i) {
    const bool whole = !has_master_shard() || !shards_.sharded(i);
    if (whole) newest_[i].copy_(parameters_[i].value);
  }
  if (!has_master_shard() || zero_ >= 3) return;
  for (const Shards::ParameterPiece& piece : shards_.pieces(ShardOf(chain_))) {
    InMemory(newest_[piece.parameter], piece.begin, piece.size())
        .copy_(collectives_->masters().narrow(0, shards_.InShard(piece), piece.size()));
  }
}

void StageWeights::SetWeights(std::span<const at::Tensor> whole) {
  const at::NoGradGuard no_gradients;
  PENSTOCK_CHECK(whole.size() == parameters_.size(), "{} tensors for {} parameters", whole.size(),
                 parameters_.size());
  for (std::size_t i = 0; i < whole.size(); ++i) {
    if (!has_master_shard() || !shards_.sharded(i)) {
      parameters_[i].value.copy_(whole[i]);
    } else if (zero_ < 3) {
      newest_[i].copy_(whole[i]);
    }
  }
  for (const Shards::ParameterPiece& piece : shards_.pieces(ShardOf(chain_))) {
    if (!has_master_shard()) break;
    collectives_->masters()
        .narrow(0, shards_.InShard(piece), piece.size())
        .copy_(whole[piece.parameter].flatten().narrow(0, piece.begin, piece.size()));
  }
  SetWorking();
}

void StageWeights::Clear() {
  flat_.zero_();
  dropped_ = false;
}

// What has arrived from others stays: the next step replaces it before it reads it.
void StageWeights::Forget() {
  Clear();
  outgoing_shard_.reset();
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
  if (collectives_) static_cast<void>(collectives_->FinishReduction());
  norms_.assign(parameters_.size(), 0);
  std::vector<std::size_t> parameter_of;
  std::vector<at::Tensor> gradients;
  const auto add = [&](const Shards::ParameterPiece& piece) {
    parameter_of.push_back(piece.parameter);
    gradients.push_back(GradientOf(piece));
  };
  const int first = zero_ > 0 ? ShardOf(chain_) : 0;
  const int last = zero_ > 0 ? ShardOf(chain_) : shards_.shards() - 1;
  for (int shard = first; shard <= last && (zero_ == 0 || counts()); ++shard) {
    for (const Shards::ParameterPiece& piece : shards_.pieces(shard)) {
      if (parameters_[piece.parameter].counts) add(piece);
    }
  }
  for (const Shards::ParameterPiece& piece : shards_.unsharded()) {
    if (CountsUnsharded(piece.parameter)) add(piece);
  }
  const std::vector<double> squared = penstock::SquaredNorms(gradients);
  for (std::size_t i = 0; i < squared.size(); ++i) norms_[parameter_of[i]] += squared[i];
  return norms_;
}

bool StageWeights::HaveSameExperts(int chain, int other) const {
  return expert_parts_.empty() || expert_parts_[Index(chain)] == expert_parts_[Index(other)];
}

// The first replica that has it counts.
bool StageWeights::CountsUnsharded(std::size_t parameter) const {
  if (!parameters_[parameter].counts) return false;
  for (int chain = 0; chain < chain_ && zero_ > 0; ++chain) {
    if (!shards_.is_of_experts(parameter) || HaveSameExperts(chain, chain_)) return false;
  }
  return true;
}

void StageWeights::StartGather() {
  if (collectives_) collectives_->StartGather();
  std::vector<NamedTensor> own;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (shards_.is_of_experts(i)) own.push_back({parameters_[i].name, parameters_[i].value});
  }
  if (!own.empty()) expert_gather_.Start(*rank_->experts, own);
}

void StageWeights::FinishGather(bool keep) {
  if (collectives_) collectives_->FinishGather(keep);
  all_experts_ = expert_gather_.Finish();
  if (!keep) all_experts_.clear();
}

void StageWeights::DropGathered() {
  if (collectives_) collectives_->DropGathered();
  all_experts_.clear();
}

std::vector<StageWeights::Range> StageWeights::RangesOf(int chain, int from) const {
  const std::int64_t all = flat_.numel();
  if (zero_ == 0) return {{0, all, 0}};
  const std::int64_t shard = shards_.shard_elements();
  std::vector<Range> ranges;
  const auto add = [&](std::int64_t begin, std::int64_t end) {
    if (begin == end) return;  // the beginning of a range identifies it
    const std::int64_t in_message =
        ranges.empty() ? 0 : ranges.back().in_message + ranges.back().size;
    ranges.push_back({begin, end - begin, in_message});
  };
  if (zero_ == 1) {
    add(ShardOf(chain) * shard, (ShardOf(chain) + 1) * shard);
  } else if (chains_per_shard_ > 1 && ShardOf(chain) == ShardOf(from)) {
    add(0, shard);  // REDUCE_GRAD has added the replicas of the other shards
  }
  const std::int64_t unsharded = InFlat(shards_.rest());
  const std::int64_t experts = shards_.has_experts() ? InFlat(shards_.experts_begin()) : all;
  add(unsharded, experts);
  if (HaveSameExperts(chain, from)) add(experts, all);
  return ranges;
}

// In elements, of the message with the gradients that the replica in a chain sends to this one.
std::int64_t StageWeights::ElementsFrom(int chain) const {
  const std::vector<Range> ranges = RangesOf(chain_, chain);
  return ranges.empty() ? 0 : ranges.back().in_message + ranges.back().size;
}

Message StageWeights::ShareGradients(int to_chain) {
  if (collectives_ && chains_per_shard_ > 1) {
    static_cast<void>(collectives_->FinishReduction());
  }
  const std::vector<Range> ranges = RangesOf(to_chain, chain_);
  const std::int64_t elements = ranges.empty() ? 0 : ranges.back().in_message + ranges.back().size;
  at::Tensor& outgoing =
      Unread(elements, flat_.options(), outgoing_[zero_ > 0 ? Index(to_chain) : 0]);
  for (const Range& range : ranges) {
    outgoing.narrow(0, range.in_message, range.size)
        .copy_(flat_.narrow(0, range.begin, range.size));
  }
  std::array<at::Tensor, 2> sent = {outgoing, losses_.values().clone()};
  return ToMessage(sent);
}

Message StageWeights::ShareParameter(int parameter) {
  Shared& shared = *shared_[parameter];
  const at::Tensor& gradient = gradients_[shared.index];
  Unread(gradient.numel(), gradient.options(), shared.outgoing)
      .copy_(InMemory(gradient, 0, gradient.numel()));
  return MessageOf(shared.outgoing);
}

void StageWeights::TakeParameter(int parameter, int holder, Message gradient) {
  Shared& shared = *shared_[parameter];
  const at::Tensor& own = gradients_[shared.index];
  const std::array types = {ContiguousType(own.scalar_type(), {own.numel()})};
  shared.incoming[holder] =
      TensorsOf(std::move(gradient), types, "gradients", flat_.device()).front();
}

// Every stage adds in the order of the holders, so that all arrive at the same sum.
void StageWeights::AddParameter(int parameter) {
  Shared& shared = *shared_[parameter];
  const at::Tensor& own = gradients_[shared.index];
  const at::Tensor flat = InMemory(own, 0, own.numel());
  std::vector<at::Tensor> parts;
  for (std::size_t holder = 0; holder < shared.incoming.size(); ++holder) {
    const bool is_own = static_cast<int>(holder) == shared.holder;
    parts.push_back(is_own ? flat : shared.incoming[holder]);
  }
  Sum(parts, flat);
  for (at::Tensor& tensor : shared.incoming) tensor.reset();
}

void StageWeights::TakeGradients(int chain, Message gradients) {
  const std::array types = {
      ContiguousType(flat_.scalar_type(), {ElementsFrom(chain)}),
      ContiguousType(at::kFloat, {static_cast<std::int64_t>(losses_.size())})};
  auto [incoming, its_losses] = TensorsOf(std::move(gradients), types, "gradients", flat_.device());
  incoming_[chain] = std::move(incoming);
  losses_of_[chain].SetAll(its_losses);
}

// Every replica adds in the order of the chains, so that all arrive at the same sum.
void StageWeights::AddGradients() {
  for (const Range& range : RangesOf(chain_, chain_)) {
    const at::Tensor own = flat_.narrow(0, range.begin, range.size);
    std::vector<at::Tensor> parts;  // by chain that has the range
    for (int chain = 0; chain < std::ssize(incoming_); ++chain) {
      if (chain == chain_) {
        parts.push_back(own);
        continue;
      }
      for (const Range& sent : RangesOf(chain_, chain)) {
        if (sent.begin != range.begin) continue;
        parts.push_back(incoming_[chain].narrow(0, sent.in_message, range.size));
      }
    }
    if (parts.size() > 1) Sum(parts, own);  // otherwise, no other replica has these experts
  }
  for (at::Tensor& tensor : incoming_) tensor.reset();
}

Message StageWeights::ShareShard() {
  const at::NoGradGuard no_gradients;
  if (!outgoing_shard_.defined()) {
    outgoing_shard_ = at::zeros({shards_.shard_elements()}, OnDevice(SentType()));
    for (const Shards::ParameterPiece& piece : shards_.pieces(ShardOf(chain_))) {
      outgoing_shard_.narrow(0, shards_.InShard(piece), piece.size()).copy_(Sent(piece));
    }
  }
  return MessageOf(outgoing_shard_);
}

void StageWeights::TakeShard(int chain, Message parameters) {
  const at::NoGradGuard no_gradients;
  const std::array types = {ContiguousType(SentType(), {shards_.shard_elements()})};
  const auto [shard] = TensorsOf(std::move(parameters), types, "parameters", flat_.device());
  for (const Shards::ParameterPiece& piece : shards_.pieces(ShardOf(chain))) {
    const at::Tensor values = shard.narrow(0, shards_.InShard(piece), piece.size());
    Sent(piece).copy_(values);
    const bool is_master = cast_ && !has_master_shard();
    if (is_master) InMemory(newest_[piece.parameter], piece.begin, piece.size()).copy_(values);
  }
}

// Replicas that have whole masters send these, else what they compute with.
at::Tensor StageWeights::Sent(const Shards::ParameterPiece& piece) const {
  const at::Tensor& whole =
      has_master_shard() ? newest_[piece.parameter] : parameters_[piece.parameter].value;
  return InMemory(whole, piece.begin, piece.size());
}

at::ScalarType StageWeights::SentType() const {
  return has_master_shard() ? newest_.front().scalar_type() : at::kFloat;
}

}  // namespace penstock
