#include "train/stage/stage_weights.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <array>
#include <stdexcept>
#include <utility>

#include "base/index.h"
#include "train/shards/tensor_groups.h"
#include "train/stage/gradient_norm.h"
#include "train/stage/stage_spec.h"
#include "train/stage/torch_vocabulary.h"
#include "train/weights/exchanged_tensors.h"

namespace penstock {
namespace {

ReplicaDivision DivisionOf(const TorchStageOptions& options) {
  const ReplicaOptions& replicas = options.replicas;
  const int per_shard = replicas.zero == 0 ? replicas.count : replicas.count / replicas.shards;
  return {replicas.count, replicas.chain, replicas.zero, per_shard, options.experts.parts};
}

PlaneSums PlanesOf(std::span<const NamedTensor> parameters, const TorchStageOptions& options) {
  std::vector<std::string> names;
  for (const NamedTensor& parameter : parameters) names.push_back(parameter.name);
  return PlaneSums(options.gradients.planes, names);
}

}  // namespace

StageWeights::StageWeights(std::span<const NamedTensor> working,
                           std::span<const NamedTensor> masters, const StageProgram& program,
                           const TorchStageOptions& options, const StepLosses& losses)
    : cast_(options.working != nullptr),
      optimizer_(options.optimizer),
      division_(DivisionOf(options)),
      shards_(ShardsOf(masters, options)),
      versions_(working, options.schedule.versions.older),
      gradients_(working, shards_, division_.zero >= 2,
                 losses.values().options().dtype(options.gradients.dtype)),
      planes_(PlanesOf(working, options)),
      sums_(division_, shards_, gradients_, losses),
      rank_(options.rank.shards ? options.rank.shards : std::make_shared<RankShards>()) {
  rank_->gradients.Add(static_cast<std::int64_t>(gradients_.flat().nbytes()));
  Describe(masters, options);
  AddShared(options);
  MakeCollectives(program, options);
  ChooseUpdated(options);
  AddProgram(program);
  rank_->weights.Add(WeightBytes());
}

void StageWeights::Describe(std::span<const NamedTensor> masters,
                            const TorchStageOptions& options) {
  for (std::size_t i = 0; i < masters.size(); ++i) {
    NamedParameter& parameter = parameters_.emplace_back(
        masters[i].name, masters[i].tensor.detach(), gradients_.tensors()[i]);
    if (options.gradients.counts_all) parameter.counts = true;
    if (shards_.is_of_experts(i)) {
      std::vector<std::int64_t> shape = parameter.value.sizes().vec();
      const Box own = {0, division_.experts[Index(division_.chain)] * shape[0], shape[0]};
      shape[0] *= options.experts.ranks;
      parameter.layout = Layout(std::move(shape), own);
    }
    if (options.rank.vocabulary) options.rank.vocabulary->Describe(parameter);
    const auto found = options.tensor.parts.find(parameter.name);
    if (found == options.tensor.parts.end()) continue;
    const ParameterPart& part = found->second;
    if (part.copies > 1) copied_.emplace_back(i, part);
    if (part.parts == 1) continue;
    // In the part, the elements of earlier experts come first.
    parameter.layout = part.LayoutOf(parameter.layout.shape()).From(parameter.layout.begin());
    parameter.part = part;
    if (options.tensor.rank % part.copies != 0) parameter.counts = false;
  }
}

// A shared parameter has a gradient if any of its holders computes one.
void StageWeights::AddShared(const TorchStageOptions& options) {
  for (NamedParameter& each : parameters_) each.has_gradient = division_.zero > 0;
  for (const auto& shared : options.gradients.shared) {
    if (!shared) {
      shared_.AddOther();
      continue;
    }
    const auto parameter = std::ranges::find(parameters_, shared->parameter, &NamedParameter::name);
    PENSTOCK_CHECK(parameter != parameters_.end(),
                   "the stage does not have its shared parameter {}", shared->parameter);
    parameter->counts = shared->holder == 0;
    parameter->has_gradient = true;
    shared_.Add(parameter->gradient, shared->holder, shared->holders);
  }
}

void StageWeights::MakeCollectives(const StageProgram& program, const TorchStageOptions& options) {
  if (options.replicas.group == nullptr || division_.zero == 0) return;
  ShardCollectives::Tensors tensors{versions_.newest(), {}, gradients_.tensors(), {}};
  if (division_.zero >= 2)
    tensors.gradient_shard = gradients_.flat().narrow(0, 0, shards_.shard_elements());
  for (const NamedParameter& parameter : parameters_) tensors.masters.push_back(parameter.value);
  collectives_.emplace(
      shards_, division_.shard(),
      ShardCollectives::Kept{.weights = division_.zero >= 3, .gradients = division_.zero >= 2},
      std::move(tensors), program, options.replicas.group, *rank_);
}

void StageWeights::ChooseUpdated(const TorchStageOptions& options) {
  if (division_.zero == 0) {
    for (int shard = 0; shard < shards_.shards() && shards_.shards() > 1; ++shard) {
      for (const Shards::ParameterPiece& piece : shards_.pieces(shard)) {
        parameters_[piece.parameter].parts.push_back({shard, gradients_.Of(piece)});
      }
    }
    updated_ = parameters_;
    return;
  }
  PENSTOCK_CHECK(options.replicas.shards * division_.per_shard == division_.replicas &&
                     versions_.count() == 1 && (division_.zero == 1 || collectives_),
                 "{} shards of {} replicas", options.replicas.shards, division_.replicas);
  for (const Shards::ParameterPiece& piece : shards_.pieces(division_.shard())) {
    NamedParameter part = parameters_[piece.parameter];
    PENSTOCK_CHECK(part.value.is_contiguous(), "{} is not contiguous", part.name);
    part.value =
        has_master_shard() ? MasterOf(piece) : InMemory(part.value, piece.begin, piece.size());
    part.gradient = gradients_.Of(piece);
    part.layout = part.layout.From(piece.begin);
    part.counts = part.counts && division_.counts();
    updated_.push_back(std::move(part));
  }
  for (const Shards::ParameterPiece& piece : shards_.unsharded()) {
    updated_.push_back(parameters_[piece.parameter]);
    updated_.back().counts = CountsUnsharded(piece.parameter);
  }
}

void StageWeights::AddProgram(const StageProgram& program) {
  planes_.AddProgram(program);
  for (const StagePiece* const piece : {&program.backward_input, &program.backward_weight}) {
    for (const Bound& bound : piece->graph.bound) {
      if (bound.kind != BoundKind::kGradient) continue;
      for (NamedParameter& updated : updated_) {
        updated.has_gradient = updated.has_gradient || updated.name == bound.name;
      }
    }
  }
}

std::vector<NamedParameter> StageWeights::Restored() const {
  if (!has_master_shard()) return parameters_;
  std::vector<NamedParameter> all = updated_;
  for (std::size_t i = 0; i < parameters_.size() && division_.zero < 3; ++i) {
    if (!shards_.sharded(i)) continue;
    all.emplace_back(parameters_[i].name, versions_.newest()[i], gradients_.tensors()[i]);
  }
  return all;
}

// Masters that the stage does not compute with count, too.
std::int64_t StageWeights::WeightBytes() const {
  std::int64_t bytes = collectives_ ? collectives_->shard_bytes() : 0;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const bool has_working = division_.zero < 3 || !shards_.sharded(i);
    const bool has_master = cast_ && !(has_master_shard() && shards_.sharded(i));
    const auto working = static_cast<std::int64_t>(versions_.newest()[i].nbytes());
    if (has_working) bytes += working * versions_.count();
    if (has_master) bytes += static_cast<std::int64_t>(parameters_[i].value.nbytes());
  }
  return bytes;
}

void StageWeights::AddPlanes() {
  if (std::exchange(planes_added_, true)) return;
  const at::NoGradGuard no_gradients;
  planes_.AddPartial(gradients_.tensors());
  if (!copied_.empty()) AddCopies();
  if (rank_->context) AddContext();
}

// Each part has its place among the parts of the whole parameter, where the others add zeros.
void StageWeights::AddCopies() {
  std::int64_t elements = 0;
  for (const auto& [parameter, part] : copied_) {
    elements += gradients_.tensors()[parameter].numel() * part.parts;
  }
  const at::Tensor own = at::zeros({elements}, gradients_.flat().options());
  const auto for_each = [&](const at::Tensor& packed, const auto& copy) {
    std::int64_t begin = 0;
    for (const auto& [parameter, part] : copied_) {
      const at::Tensor& gradient = gradients_.tensors()[parameter];
      const std::int64_t size = gradient.numel();
      copy(packed.narrow(0, begin + part.part * size, size).view(gradient.sizes()), gradient);
      begin += size * part.parts;
    }
  };
  for_each(own, [](const at::Tensor& place, const at::Tensor& gradient) { place.copy_(gradient); });
  for_each(SumOverGroup(*rank_->tensor, own),
           [](const at::Tensor& sum, const at::Tensor& gradient) { gradient.copy_(sum); });
}

// Gradients that are whole until their reduction have memory of their own.
void StageWeights::AddContext() {
  at::Tensor here = gradients_.flat();
  if (division_.zero >= 2) {
    SumInPlace(*rank_->context, collectives_->WholeGradients());
    here = here.narrow(0, shards_.shard_elements(), here.numel() - shards_.shard_elements());
  }
  if (here.numel() > 0) SumInPlace(*rank_->context, here);
}

Message StageWeights::ShareParameter(int parameter) {
  AddPlanes();
  return shared_.Share(parameter);
}

std::vector<std::pair<int, GroupEnd*>> StageWeights::groups() const {
  std::vector<std::pair<int, GroupEnd*>> groups;
  for (const auto& [number, group] : {std::pair(kExpertGroup, rank_->experts.get()),
                                      {kTensorGroup, rank_->tensor.get()},
                                      {kContextGroup, rank_->context.get()}}) {
    if (group != nullptr) groups.emplace_back(number, group);
  }
  return groups;
}

void StageWeights::StartReduction() {
  AddPlanes();
  collectives_->StartReduction();
}

void StageWeights::Update(const TorchStage::Update& update) {
  const at::NoGradGuard no_gradients;
  AddPlanes();
  if (collectives_ && collectives_->has_gradients()) {
    throw std::runtime_error("the gradients were not reduced: add REDUCE_GRAD to the schedule");
  }
  planes_.AverageGradients(gradients_.flat());
  versions_.Keep();
  update(updated_);
  versions_.CountUpdate();
  outgoing_shard_.reset();
  SetWorking();
}

void StageWeights::SetWorking() {
  const at::NoGradGuard no_gradients;
  if (collectives_) collectives_->SetWorking();
  const std::vector<at::Tensor>& working = versions_.newest();
  for (std::size_t i = 0; cast_ && i < parameters_.size(); ++i) {
    const bool whole = !has_master_shard() || !shards_.sharded(i);
    if (whole) working[i].copy_(parameters_[i].value);
  }
  if (!has_master_shard() || division_.zero >= 3) return;
  for (const Shards::ParameterPiece& piece : shards_.pieces(division_.shard())) {
    InMemory(working[piece.parameter], piece.begin, piece.size()).copy_(MasterOf(piece));
  }
}

void StageWeights::SetWeights(std::span<const at::Tensor> whole) {
  const at::NoGradGuard no_gradients;
  PENSTOCK_CHECK(whole.size() == parameters_.size(), "{} tensors for {} parameters", whole.size(),
                 parameters_.size());
  for (std::size_t i = 0; i < whole.size(); ++i) {
    if (!has_master_shard() || !shards_.sharded(i)) {
      parameters_[i].value.copy_(whole[i]);
    } else if (division_.zero < 3) {
      versions_.newest()[i].copy_(whole[i]);
    }
  }
  for (const Shards::ParameterPiece& piece : shards_.pieces(division_.shard())) {
    if (!has_master_shard()) break;
    MasterOf(piece).copy_(whole[piece.parameter].flatten().narrow(0, piece.begin, piece.size()));
  }
  SetWorking();
}

void StageWeights::Clear() {
  gradients_.flat().zero_();
  planes_added_ = false;
  planes_.EndStep();
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
  PENSTOCK_CHECK(optimizer_.save && versions_.count() == 1,
                 "the stage's steps cannot be rolled back");
  optimizer_.save(updated_);
  Update(update);
}

void StageWeights::RollBackStep() {
  const at::NoGradGuard no_gradients;
  optimizer_.restore();
  versions_.CountUpdate(-1);
  SetWorking();
}

// Adds the norms of a parameter's pieces in the order of the shards, as the ranks do that have one
// shard each.
std::span<const double> StageWeights::SquaredNorms() {
  AddPlanes();
  if (collectives_) static_cast<void>(collectives_->FinishReduction());
  planes_.AverageGradients(gradients_.flat());
  norms_.assign(parameters_.size(), 0);
  std::vector<std::size_t> parameter_of;
  std::vector<at::Tensor> gradients;
  const auto add = [&](const Shards::ParameterPiece& piece) {
    parameter_of.push_back(piece.parameter);
    gradients.push_back(gradients_.Of(piece));
  };
  const bool all = division_.zero == 0;
  const int first = all ? 0 : division_.shard();
  const int last = all ? shards_.shards() - 1 : division_.shard();
  for (int shard = first; shard <= last && (all || division_.counts()); ++shard) {
    for (const Shards::ParameterPiece& piece : shards_.pieces(shard)) {
      if (parameters_[piece.parameter].counts) add(piece);
    }
  }
  for (const Shards::ParameterPiece& piece : shards_.unsharded()) {
    if (CountsUnsharded(piece.parameter)) add(piece);
  }
  const std::vector<double> squared = penstock::SquaredNorms(gradients);
  for (std::size_t i = 0; i < squared.size(); ++i) norms_[parameter_of[i]] += squared[i];
  if (rank_->tensor) AddNormsOfParts();
  planes_.AddNorms(norms_);
  return norms_;
}

void StageWeights::AddNormsOfParts() {
  std::vector<double> of_parts;
  for (std::size_t i = 0; i < norms_.size(); ++i) {
    if (parameters_[i].part) of_parts.push_back(norms_[i]);
  }
  SumOverGroup(*rank_->tensor, gradients_.flat().device(), of_parts);
  for (std::size_t i = 0, part = 0; i < norms_.size(); ++i) {
    if (parameters_[i].part) norms_[i] = of_parts[part++];
  }
}

// The first replica that has it counts.
bool StageWeights::CountsUnsharded(std::size_t parameter) const {
  if (!parameters_[parameter].counts) return false;
  for (int chain = 0; chain < division_.chain && division_.zero > 0; ++chain) {
    const bool has_it =
        !shards_.is_of_experts(parameter) || division_.HaveSameExperts(chain, division_.chain);
    if (has_it) return false;
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

Message StageWeights::ShareGradients(int to_chain) {
  AddPlanes();
  if (collectives_ && division_.per_shard > 1) {
    static_cast<void>(collectives_->FinishReduction());
  }
  return sums_.Share(to_chain);
}

Message StageWeights::ShareShard() {
  const at::NoGradGuard no_gradients;
  if (!outgoing_shard_.defined()) {
    outgoing_shard_ =
        at::zeros({shards_.shard_elements()}, gradients_.flat().options().dtype(SentType()));
    for (const Shards::ParameterPiece& piece : shards_.pieces(division_.shard())) {
      outgoing_shard_.narrow(0, shards_.InShard(piece), piece.size()).copy_(Sent(piece));
    }
  }
  return MessageOf(outgoing_shard_);
}

void StageWeights::TakeShard(int chain, Message parameters) {
  const at::NoGradGuard no_gradients;
  const std::array types = {ContiguousType(SentType(), {shards_.shard_elements()})};
  const auto [shard] =
      TensorsOf(std::move(parameters), types, "parameters", gradients_.flat().device());
  for (const Shards::ParameterPiece& piece : shards_.pieces(division_.ShardOf(chain))) {
    const at::Tensor values = shard.narrow(0, shards_.InShard(piece), piece.size());
    Sent(piece).copy_(values);
    if (!cast_ || has_master_shard()) continue;
    InMemory(versions_.newest()[piece.parameter], piece.begin, piece.size()).copy_(values);
  }
}

// Replicas that have whole masters send these, else what they compute with.
at::Tensor StageWeights::Sent(const Shards::ParameterPiece& piece) const {
  const at::Tensor& whole =
      has_master_shard() ? versions_.newest()[piece.parameter] : parameters_[piece.parameter].value;
  return InMemory(whole, piece.begin, piece.size());
}

at::ScalarType StageWeights::SentType() const {
  return has_master_shard() ? versions_.newest().front().scalar_type() : at::kFloat;
}

}  // namespace penstock
