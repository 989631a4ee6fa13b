#include "train/optimizer/optimizer.h"

#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>
#include <utility>

#include "base/index.h"
#include "runtime/update/update.h"
#include "train/shards/tensor_groups.h"
#include "train/stage/gradient_norm.h"

namespace penstock {

namespace {

// Elements that are converted to fp32 at a time: few enough for a core's cache, or enough to fill a
// device.
std::int64_t PartFor(const at::Tensor& tensor) { return tensor.is_cpu() ? 1 << 18 : 1 << 24; }

struct AdamTensors {
  at::TensorList values, gradients, first_moments, second_moments, steps;
};

void RunAdam(const ParameterRule& rule, double lr, const AdamTensors& of) {
  at::_fused_adamw_(of.values, of.gradients, of.first_moments, of.second_moments,
                    /*max_exp_avg_sqs=*/{}, of.steps, lr * rule.lr_scale, rule.beta1, rule.beta2,
                    rule.weight_decay, rule.epsilon, /*amsgrad=*/false, /*maximize=*/false,
                    std::nullopt, std::nullopt);
}

// The size of the rank's matrices: parts of the whole ones, or these.
Matrices SizeOfPart(const NamedParameter& parameter) {
  std::vector<std::int64_t> shape = parameter.layout.shape();
  if (const auto& part = parameter.part) {
    shape[Index(part->dimension)] = part->box().count * part->blocks;
  }
  return Matrices(shape);
}

// The first element of the value in the rank's part of the parameter, or in the whole one.
std::int64_t BeginInPart(const NamedParameter& parameter) {
  if (!parameter.part) return parameter.layout.begin();
  return parameter.layout.begin() - Layout(parameter.layout.shape(), parameter.part->box()).begin();
}

// The part of each matrix of a parameter that may have several, one per index of the first
// dimension.
ParameterPart PartOfMatrix(const Layout& layout, ParameterPart part) {
  part.dimension -= std::ssize(layout.shape()) - 2;
  return part;
}

}  // namespace

double LearningRate::At(std::int64_t step) const {
  if (step < config.warmup) {
    return config.lr * static_cast<double>(step + 1) / static_cast<double>(config.warmup);
  }
  const auto length = static_cast<double>(std::max<std::int64_t>(1, steps - config.warmup));
  const double done = std::min(1.0, static_cast<double>(step - config.warmup + 1) / length);
  const double cosine = 0.5 * (1 + std::cos(std::numbers::pi * done));
  return config.lr * (config.lr_end + (1 - config.lr_end) * cosine);
}

// Adds parameters in no shard last, as the ranks do that have one shard each.
std::vector<double> FiniteSquaredNorms(const UpdateRule& rule,
                                       const std::vector<NamedParameter>& parameters,
                                       GroupEnd* tensor) {
  struct Part {
    const NamedParameter& parameter;
    int shard;
  };
  std::vector<Part> of;
  std::vector<at::Tensor> gradients;
  const auto add = [&](const NamedParameter& parameter, int shard, const at::Tensor& gradient) {
    of.push_back({parameter, shard});
    gradients.push_back(gradient);
  };
  for (const NamedParameter& parameter : parameters) {
    for (const auto& [shard, gradient] : parameter.parts) add(parameter, shard, gradient);
  }
  for (const NamedParameter& parameter : parameters) {
    if (parameter.parts.empty()) add(parameter, 0, parameter.gradient);
  }
  const std::vector<double> squared = SquaredNorms(gradients);
  std::vector<double> sums(1), of_parts(1);
  for (std::size_t i = 0; i < of.size(); ++i) {
    const auto& [parameter, shard] = of[i];
    if (!std::isfinite(squared[i])) FailOnNonFinite(rule, parameter.name);
    sums.resize(std::max(sums.size(), Index(shard) + 1));
    of_parts.resize(sums.size());
    if (parameter.counts) (parameter.part ? of_parts : sums)[Index(shard)] += squared[i];
  }
  if (tensor == nullptr) return sums;
  SumOverGroup(*tensor, parameters.front().value.device(), of_parts);
  for (std::size_t shard = 0; shard < sums.size(); ++shard) sums[shard] += of_parts[shard];
  return sums;
}

Optimizer::Optimizer(std::shared_ptr<const LearningRate> rate, int updates_per_step,
                     std::unique_ptr<MatrixExchange> exchange, GroupEnd* tensor)
    : rate_(std::move(rate)),
      rules_(rate_->config),
      updates_per_step_(updates_per_step),
      exchange_(std::move(exchange)),
      tensor_(tensor) {}

Optimizer::~Optimizer() = default;

Optimizer::AdamGroup& Optimizer::GroupOf(const ParameterRule& rule) {
  const auto found = std::ranges::find(groups_, rule, &AdamGroup::rule);
  if (found != groups_.end()) return *found;
  groups_.emplace_back().rule = rule;
  return groups_.back();
}

void Optimizer::MakeState(const std::vector<NamedParameter>& parameters) {
  if (std::exchange(has_state_, true)) return;
  for (const NamedParameter& parameter : parameters) {
    const About about{parameter.name, parameter.layout};
    const ParameterRule rule = rules_.Of(parameter.name, parameter.layout.shape().size());
    if (rate_->config.ema > 0) {
      averages_.push_back({about, parameter.value, at::zeros_like(parameter.value)});
    }
    if (rule.balance) {
      biases_.emplace_back(parameter.value, parameter.gradient);
      continue;
    }
    if (rule.muon) {
      const at::Tensor value = parameter.value.view({-1});
      matrices_.push_back({rule, about, parameter.part, SizeOfPart(parameter),
                           BeginInPart(parameter), value, parameter.gradient.view({-1}),
                           at::zeros_like(value)});
      orthogonalizer_.Reserve(Matrices(parameter.layout.shape()), value.device());
      continue;
    }
    AdamGroup& group = GroupOf(rule);
    group.about.push_back(about);
    group.values.push_back(parameter.value);
    group.gradients.push_back(parameter.gradient);
    group.first_moments.push_back(at::zeros_like(parameter.value));
    group.second_moments.push_back(at::zeros_like(parameter.value));
    group.steps.push_back(at::zeros({}, parameter.value.options().dtype(at::kFloat)));
  }
}

void Optimizer::Update(const std::vector<NamedParameter>& parameters) {
  MakeState(parameters);
  StartAverages();
  const double lr = rate_->At(step_++ / updates_per_step_);
  UpdateAdam(lr);
  UpdateMuon(lr);
  UpdateBiases();
  for (const Average& each : averages_) Blend(each.average, each.value, 1 - rate_->config.ema);
}

void Optimizer::UpdateAdam(double lr) {
  for (AdamGroup& group : groups_) {
    if (group.steps.front().is_cpu()) {
      for (at::Tensor& step : group.steps) *step.mutable_data_ptr<float>() += 1;
    } else {
      at::_foreach_add_(group.steps, 1);
    }
    if (group.gradients.front().scalar_type() == at::kBFloat16) {
      UpdateInParts(group, lr);
      continue;
    }
    RunAdam(
        group.rule, lr,
        {group.values, group.gradients, group.first_moments, group.second_moments, group.steps});
  }
}

// ATen's kernel requires gradients in the dtype of the parameters.
void Optimizer::UpdateInParts(const AdamGroup& group, double lr) {
  const auto options = group.values.front().options().dtype(at::kFloat);
  const std::int64_t most = PartFor(group.values.front());
  if (!wide_.defined()) wide_ = at::empty({most}, options);
  for (std::size_t i = 0; i < group.values.size(); ++i) {
    const std::int64_t elements = group.values[i].numel();
    for (std::int64_t begin = 0; begin < elements; begin += most) {
      const std::int64_t size = std::min(most, elements - begin);
      const auto part = [&](const at::Tensor& whole) {
        return whole.as_strided({size}, {1}, whole.storage_offset() + begin);
      };
      const at::Tensor gradient = wide_.narrow(0, 0, size);
      gradient.copy_(part(group.gradients[i]));
      RunAdam(group.rule, lr,
              {part(group.values[i]), gradient, part(group.first_moments[i]),
               part(group.second_moments[i]), group.steps[i]});
    }
  }
}

std::vector<Optimizer::MatrixPart> Optimizer::PartsOf(const MuonParameter& parameter) {
  const std::int64_t size = parameter.size.elements(), first = parameter.first;
  const std::int64_t last = first + parameter.value.numel();
  std::vector<MatrixPart> parts;
  for (std::int64_t matrix = first / size; matrix * size < last; ++matrix) {
    const std::int64_t begin = std::max(first, matrix * size);
    parts.push_back({matrix, begin - first, std::min(last, (matrix + 1) * size) - begin});
  }
  return parts;
}

// Sends the parts of divided matrices first, so that all matrices are whole afterwards.
void Optimizer::UpdateMuon(double lr) {
  for (const MuonParameter& each : matrices_) {
    Blend(each.momentum, each.gradient, 1 - each.rule.momentum);
    for (const MatrixPart& part : PartsOf(each)) {
      if (exchange_ == nullptr || !exchange_->Divides(each.about.name, part.matrix)) continue;
      NesterovDirection(exchange_->Own(each.about.name, part.matrix),
                        each.momentum.narrow(0, part.begin, part.size),
                        each.gradient.narrow(0, part.begin, part.size), 1 - each.rule.momentum);
    }
  }
  if (exchange_ != nullptr) exchange_->Gather();
  for (const MuonParameter& each : matrices_) {
    for (const MatrixPart& part : PartsOf(each)) UpdateMatrix(each, part, lr);
  }
}

void Optimizer::SetDirection(const MuonParameter& parameter, const MatrixPart& part,
                             const at::Tensor& to) {
  if (part.size == parameter.size.elements()) {
    NesterovDirection(to, parameter.momentum.narrow(0, part.begin, part.size),
                      parameter.gradient.narrow(0, part.begin, part.size),
                      1 - parameter.rule.momentum);
  } else {
    PENSTOCK_CHECK(exchange_ != nullptr, "a part of {} without the others", parameter.about.name);
    exchange_->CopyTo(parameter.about.name, part.matrix, to);
  }
}

at::Tensor Optimizer::Orthogonalized(const MuonParameter& parameter, const MatrixPart& part) {
  const Matrices size(parameter.about.layout.shape());
  const at::Tensor input = orthogonalizer_.Input(size);
  if (!parameter.part) {
    SetDirection(parameter, part, input);
    return orthogonalizer_.Run(size);
  }
  PENSTOCK_CHECK(tensor_ != nullptr, "a part of {} without the others", parameter.about.name);
  // All ranks of the group orthogonalize the same whole matrices, in the same order.
  const at::Tensor own = at::empty({parameter.size.rows, parameter.size.columns}, input.options());
  SetDirection(parameter, part, own.view({-1}));
  const std::vector<at::Tensor> of_ranks = tensor_->Wait(StartGather(*tensor_, own)).unbind();
  const ParameterPart of_matrix = PartOfMatrix(parameter.about.layout, *parameter.part);
  std::vector<at::Tensor> parts;
  for (int i = 0; i < of_matrix.parts; ++i) parts.push_back(of_ranks[Index(i * of_matrix.copies)]);
  input.view({size.rows, size.columns}).copy_(of_matrix.Join(parts));
  return of_matrix.Of(orthogonalizer_.Run(size).view({size.rows, size.columns})).flatten();
}

// As torch.optim.Muon.
void Optimizer::UpdateMatrix(const MuonParameter& parameter, const MatrixPart& part, double lr) {
  const ParameterRule& rule = parameter.rule;
  const Matrices size(parameter.about.layout.shape());
  const std::int64_t in_matrix =
      parameter.first + part.begin - part.matrix * parameter.size.elements();
  const at::Tensor update = Orthogonalized(parameter, part).narrow(0, in_matrix, part.size);
  const double rate = lr * rule.lr_scale;
  const at::Tensor value = parameter.value.narrow(0, part.begin, part.size);
  value.mul_(1 - rate * rule.weight_decay);
  update.mul_(rate * MuonScale(rate_->config.adjust_lr_fn, size.rows, size.columns));
  value.sub_(update);
}

// Wang et al., Auxiliary-Loss-Free Load Balancing Strategy, 2024, algorithm 1.
void Optimizer::UpdateBiases() {
  for (const auto& [value, gradient] : biases_) {
    value.sub_(gradient.sign(), rate_->config.balance_rate);
  }
}

// The averages start at the weights before the first update.
void Optimizer::StartAverages() {
  if (std::exchange(averages_started_, true)) return;
  for (const Average& each : averages_) each.average.copy_(each.value);
}

void Optimizer::Skip() {
  StartAverages();
  ++step_;
}

void Optimizer::RecordSquaredNorms(std::span<const double> by_shard) {
  squared_norms_.resize(std::max(squared_norms_.size(), by_shard.size()));
  for (std::size_t shard = 0; shard < by_shard.size(); ++shard) {
    squared_norms_[shard] += by_shard[shard];
  }
  ++recorded_norms_;
}

std::vector<double> Optimizer::TakeMeanSquaredNorms() {
  std::vector<double> means = std::exchange(squared_norms_, {});
  if (means.empty()) means.resize(1);
  for (double& mean : means) mean /= std::max(1, recorded_norms_);
  recorded_norms_ = 0;
  return means;
}

void Optimizer::ResumeAfter(std::int64_t step, bool has_averages) {
  step_ = step * updates_per_step_;
  averages_started_ = has_averages;
}

std::vector<OptimizerTensor> Optimizer::States() const {
  std::vector<OptimizerTensor> states;
  const auto add = [&](std::string_view kind, const About& about, const at::Tensor& values) {
    states.push_back({std::string(kind), about.name, about.layout, values});
  };
  for (const AdamGroup& group : groups_) {
    for (std::size_t i = 0; i < group.about.size(); ++i) {
      add("first_moment", group.about[i], group.first_moments[i]);
      add("second_moment", group.about[i], group.second_moments[i]);
      states.push_back(
          {"steps", group.about[i].name, Layout(std::vector<std::int64_t>()), group.steps[i]});
    }
  }
  for (const MuonParameter& each : matrices_) add("momentum", each.about, each.momentum);
  for (const Average& each : averages_) add(kAverageKind, each.about, each.average);
  return states;
}

std::int64_t Optimizer::Bytes() const {
  std::int64_t bytes = orthogonalizer_.bytes() + (exchange_ != nullptr ? exchange_->bytes() : 0);
  for (const OptimizerTensor& each : States()) {
    bytes += static_cast<std::int64_t>(each.values.nbytes());
  }
  return bytes;
}

std::vector<at::Tensor> Optimizer::Changed() const {
  std::vector<at::Tensor> changed;
  for (const AdamGroup& group : groups_) {
    for (const auto* tensors :
         {&group.values, &group.first_moments, &group.second_moments, &group.steps}) {
      changed.insert(changed.end(), tensors->begin(), tensors->end());
    }
  }
  for (const MuonParameter& each : matrices_) {
    changed.insert(changed.end(), {each.value, each.momentum});
  }
  for (const auto& [value, gradient] : biases_) changed.push_back(value);
  for (const Average& each : averages_) changed.push_back(each.average);
  return changed;
}

void Optimizer::Save(const std::vector<NamedParameter>& parameters) {
  MakeState(parameters);
  StartAverages();
  const std::vector<at::Tensor> changed = Changed();
  for (std::size_t i = 0; i < changed.size(); ++i) {
    if (i == saved_.size()) saved_.push_back(at::empty_like(changed[i]));
    saved_[i].copy_(changed[i]);
  }
  saved_step_ = step_;
}

void Optimizer::Restore() {
  std::vector<at::Tensor> changed = Changed();
  PENSTOCK_CHECK(saved_.size() == changed.size(), "Restore without a Save");
  for (std::size_t i = 0; i < changed.size(); ++i) changed[i].copy_(saved_[i]);
  step_ = saved_step_;
}

}  // namespace penstock
