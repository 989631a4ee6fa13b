#include "train/optimizer/optimizer.h"

#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>

#include "runtime/update/update.h"
#include "train/stage/gradient_norm.h"

namespace penstock {

double LearningRate::At(std::int64_t step) const {
  if (step < config.warmup) {
    return config.lr * static_cast<double>(step + 1) / static_cast<double>(config.warmup);
  }
  const auto length = static_cast<double>(std::max<std::int64_t>(1, steps - config.warmup));
  const double done = std::min(1.0, static_cast<double>(step - config.warmup + 1) / length);
  const double cosine = 0.5 * (1 + std::cos(std::numbers::pi * done));
  return config.lr * (config.lr_end + (1 - config.lr_end) * cosine);
}

double FiniteSquaredNorm(const UpdateRule& rule, const std::vector<NamedParameter>& parameters) {
  double sum = 0;
  for (const NamedParameter& parameter : parameters) {
    const double squared = SquaredNorm(parameter.gradient);
    if (!std::isfinite(squared)) FailOnNonFinite(rule, parameter.name);
    if (parameter.counts) sum += squared;
  }
  return sum;
}

void AdamW::MakeState(const std::vector<NamedParameter>& parameters) {
  if (!groups_.empty()) return;
  groups_.resize(2);
  groups_[0].weight_decay = rate_->config.weight_decay;
  for (const NamedParameter& parameter : parameters) {
    Group& group = groups_[parameter.shape.size() >= 2 ? 0 : 1];
    group.about.push_back({parameter.name, parameter.shape, parameter.begin, {}, {}, {}});
    group.values.push_back(parameter.value);
    group.gradients.push_back(parameter.gradient);
    group.first_moments.push_back(at::zeros_like(parameter.value));
    group.second_moments.push_back(at::zeros_like(parameter.value));
    group.steps.push_back(at::zeros({}, at::kFloat));
  }
}

void AdamW::Update(const std::vector<NamedParameter>& parameters) {
  MakeState(parameters);
  const OptimizerConfig& config = rate_->config;
  const double lr = rate_->At(step_++ / updates_per_step_);
  for (Group& group : groups_) {
    if (group.values.empty()) continue;
    for (at::Tensor& step : group.steps) *step.mutable_data_ptr<float>() += 1;
    at::_fused_adamw_(group.values, group.gradients, group.first_moments, group.second_moments,
                      /*max_exp_avg_sqs=*/{}, group.steps, lr, config.beta1, config.beta2,
                      group.weight_decay, config.epsilon, /*amsgrad=*/false, /*maximize=*/false,
                      std::nullopt, std::nullopt);
  }
}

void AdamW::RecordSquaredNorm(double squared) {
  squared_norms_ += squared;
  ++recorded_norms_;
}

double AdamW::TakeMeanSquaredNorm() {
  const double mean = recorded_norms_ > 0 ? squared_norms_ / recorded_norms_ : 0;
  squared_norms_ = 0;
  recorded_norms_ = 0;
  return mean;
}

void AdamW::ResumeAfter(std::int64_t step) { step_ = step * updates_per_step_; }

std::vector<AdamState> AdamW::States() const {
  std::vector<AdamState> states;
  for (const Group& group : groups_) {
    for (std::size_t i = 0; i < group.about.size(); ++i) {
      AdamState& state = states.emplace_back(group.about[i]);
      state.first_moment = group.first_moments[i];
      state.second_moment = group.second_moments[i];
      state.steps = group.steps[i];
    }
  }
  return states;
}

std::vector<at::Tensor> AdamW::Changed() const {
  std::vector<at::Tensor> changed;
  for (const Group& group : groups_) {
    for (const auto* tensors :
         {&group.values, &group.first_moments, &group.second_moments, &group.steps}) {
      changed.insert(changed.end(), tensors->begin(), tensors->end());
    }
  }
  return changed;
}

void AdamW::Save(const std::vector<NamedParameter>& parameters) {
  MakeState(parameters);
  const std::vector<at::Tensor> changed = Changed();
  for (std::size_t i = 0; i < changed.size(); ++i) {
    if (i == saved_.size()) saved_.push_back(at::empty_like(changed[i]));
    saved_[i].copy_(changed[i]);
  }
  saved_step_ = step_;
}

void AdamW::Restore() {
  std::vector<at::Tensor> changed = Changed();
  PENSTOCK_CHECK(saved_.size() == changed.size(), "Restore without a Save");
  for (std::size_t i = 0; i < changed.size(); ++i) changed[i].copy_(saved_[i]);
  step_ = saved_step_;
}

}  // namespace penstock
