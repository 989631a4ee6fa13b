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

// Returns the gradients of these parameters, in the dtypes of the parameters. Those of parameters
// that no output depends on are undefined.
void FindGradients(const std::vector<NamedParameter>& parameters,
                   const std::vector<std::string>& names, std::vector<at::Tensor>& gradients) {
  gradients.clear();
  for (const std::string& name : names) {
    const auto found = std::ranges::find(parameters, name, &NamedParameter::name);
    PENSTOCK_CHECK(found != parameters.end(), "the stage has no parameter {}", name);
    gradients.push_back(found->has_gradient ? found->gradient.to(found->value.scalar_type())
                                            : at::Tensor());
  }
}

}  // namespace

TorchStage::Update CallPython(nb::callable function, std::vector<std::string> names) {
  // Its last owner may not hold the GIL.
  const std::shared_ptr<nb::callable> kept(new nb::callable(std::move(function)),
                                           [](nb::callable* owned) {
                                             const nb::gil_scoped_acquire gil;
                                             delete owned;
                                           });
  return [kept, names = std::move(names),
          gradients = Tensors()](const std::vector<NamedParameter>& parameters) mutable {
    FindGradients(parameters, names, gradients);
    const nb::gil_scoped_acquire gil;
    WithPlainErrors([&] { return (*kept)(gradients); });
  };
}

void FusedAdamW::Set(std::size_t group, double lr, double beta1, double beta2, double eps,
                     double weight_decay) {
  AdamGroup& set = groups_.at(group);
  set.lr = lr;
  set.beta1 = beta1;
  set.beta2 = beta2;
  set.eps = eps;
  set.weight_decay = weight_decay;
}

void FusedAdamW::Update(const std::vector<NamedParameter>& parameters) {
  for (AdamGroup& group : groups_) {
    FindGradients(parameters, group.names, gradients_);
    const auto select = [this](const std::vector<at::Tensor>& of_group,
                               std::vector<at::Tensor>& selected) {
      selected.clear();
      for (std::size_t i = 0; i < of_group.size(); ++i) {
        if (gradients_[i].defined()) selected.push_back(of_group[i]);
      }
    };
    select(group.values, values_);
    select(group.first_moments, first_moments_);
    select(group.second_moments, second_moments_);
    select(group.steps, steps_);
    std::erase_if(gradients_, [](const at::Tensor& each) { return !each.defined(); });
    if (gradients_.empty()) continue;
    at::_foreach_add_(steps_, 1);
    at::_fused_adamw_(values_, gradients_, first_moments_, second_moments_,
                      /*max_exp_avg_sqs=*/{}, steps_, group.lr, group.beta1, group.beta2,
                      group.weight_decay, group.eps, /*amsgrad=*/false, /*maximize=*/false,
                      std::nullopt, std::nullopt);
  }
}

}  // namespace penstock::python
