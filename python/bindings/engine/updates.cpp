#include "bindings/engine/updates.h"

#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_fused_adamw.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <memory>

#include "base/index.h"
#include "base/result.h"
#include "bindings/engine/user_error.h"

namespace penstock::python {
namespace {

// Returns the indices of these parameters.
std::vector<std::size_t> Find(const std::vector<NamedParameter>& parameters,
                              const std::vector<std::string>& names) {
  std::vector<std::size_t> indices;
  for (const std::string& name : names) {
    const auto found = std::ranges::find(parameters, name, &NamedParameter::name);
    PENSTOCK_CHECK(found != parameters.end(), "the stage has no parameter {}", name);
    indices.push_back(Index(found - parameters.begin()));
  }
  return indices;
}

// Returns the gradient in the dtype of the parameter; undefined if no output depends on it.
at::Tensor GradientOf(const NamedParameter& parameter) {
  if (!parameter.has_gradient) return {};
  const at::ScalarType dtype = parameter.value.scalar_type();
  return parameter.gradient.scalar_type() == dtype ? parameter.gradient
                                                   : parameter.gradient.to(dtype);
}

}  // namespace

TorchStage::Update CallPython(nb::callable function, std::vector<std::string> names) {
  // Its last owner may not hold the GIL.
  const std::shared_ptr<nb::callable> kept(new nb::callable(std::move(function)),
                                           [](nb::callable* owned) {
                                             const nb::gil_scoped_acquire gil;
                                             delete owned;
                                           });
  return [kept, names = std::move(names), indices = std::vector<std::size_t>(),
          gradients = Tensors()](const std::vector<NamedParameter>& parameters) mutable {
    if (indices.size() != names.size()) indices = Find(parameters, names);
    gradients.clear();
    for (const std::size_t index : indices) gradients.push_back(GradientOf(parameters[index]));
    const nb::gil_scoped_acquire gil;
    WithPlainErrors([&] { return (*kept)(gradients); });
  };
}

void FusedAdamW::BeginRun() {
  for (AdamGroup& group : groups_) group.settings.clear();
  step_ = 0;
}

void FusedAdamW::Update(const std::vector<NamedParameter>& parameters) {
  for (AdamGroup& group : groups_) {
    if (group.indices.size() != group.names.size()) group.indices = Find(parameters, group.names);
    for (auto* list : {&gradients_, &values_, &first_moments_, &second_moments_, &steps_}) {
      list->clear();
    }
    for (std::size_t i = 0; i < group.indices.size(); ++i) {
      at::Tensor gradient = GradientOf(parameters[group.indices[i]]);
      if (!gradient.defined()) continue;
      gradients_.push_back(std::move(gradient));
      values_.push_back(group.values[i]);
      first_moments_.push_back(group.first_moments[i]);
      second_moments_.push_back(group.second_moments[i]);
      steps_.push_back(group.steps[i]);
    }
    if (gradients_.empty()) continue;
    if (steps_.front().is_cpu()) {
      for (at::Tensor& step : steps_) *step.mutable_data_ptr<float>() += 1;
    } else {
      at::_foreach_add_(steps_, 1);
    }
    const AdamSettings& set = group.settings.at(std::min(step_, group.settings.size() - 1));
    at::_fused_adamw_(values_, gradients_, first_moments_, second_moments_,
                      /*max_exp_avg_sqs=*/{}, steps_, set.lr, set.beta1, set.beta2,
                      set.weight_decay, set.eps, /*amsgrad=*/false, /*maximize=*/false,
                      std::nullopt, std::nullopt);
  }
}

}  // namespace penstock::python
