#include "bindings/engine/python_stage.h"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <stdexcept>
#include <thread>

#include "bindings/engine/user_error.h"
#include "graph/capture/foreign_scope.h"

namespace penstock::python {
namespace {

thread_local SequenceContext* slice = nullptr;

Tensors Copy(std::span<const at::Tensor> tensors) { return {tensors.begin(), tensors.end()}; }

// Registers a parameter under its name with dots ("layers.0.weight"), which a torch::nn::Module
// has only for parameters of submodules.
void Register(torch::nn::Module& module, const std::string& name, const at::Tensor& tensor) {
  const std::size_t dot = name.find('.');
  if (dot == std::string::npos) {
    module.register_parameter(name, tensor, tensor.requires_grad());
    return;
  }
  const std::string child = name.substr(0, dot);
  const auto children = module.named_children();
  Register(children.contains(child)
               ? *children[child]
               : *module.register_module(child, std::make_shared<torch::nn::Module>()),
           name.substr(dot + 1), tensor);
}

}  // namespace

PythonStage::PythonStage(StageFunctions functions, const TensorsByName& parameters,
                         TensorsByName state)
    : functions_(std::move(functions)), state_(std::move(state)) {
  for (const auto& [name, tensor] : parameters) Register(*this, name, tensor);
}

PythonStage::~PythonStage() {
  const nb::gil_scoped_acquire gil;
  functions_ = {};
}

SequenceContext* PythonStage::Slice() { return slice; }

at::Tensor PythonStage::ForwardSlice(at::Tensor input, SequenceContext& context) {
  slice = &context;
  const std::unique_ptr<SequenceContext*, void (*)(SequenceContext**)> reset(
      &slice, [](SequenceContext** of_thread) { *of_thread = nullptr; });
  const Tensors outputs = ForwardAll({&input, 1});
  if (outputs.size() != 1) {
    throw std::runtime_error(fmt::format(
        "with slices, a stage returns one tensor [batch, tokens, ...], not {}", outputs.size()));
  }
  return outputs.front();
}

template <class Function>
auto PythonStage::RunUserCode(Function&& function) {
  // Ops release the GIL.
  const ForeignScope scope([this](const at::Tensor& tensor) {
    const nb::gil_scoped_acquire gil;
    auto [refusal, is_followed] = nb::cast<std::pair<std::string, bool>>(functions_.judge(tensor));
    return ForeignTensor{std::move(refusal), is_followed};
  });
  return IsBuilding() ? function() : WithPlainErrors(function);
}

Tensors PythonStage::ForwardAll(std::span<const at::Tensor> inputs) {
  const nb::gil_scoped_acquire gil;
  return RunUserCode([&] { return nb::cast<Tensors>(functions_.forward(Copy(inputs))); });
}

Tensors PythonStage::LossAndReports(std::span<const at::Tensor> outputs,
                                    std::span<const at::Tensor> targets) {
  const nb::gil_scoped_acquire gil;
  return RunUserCode(
      [&] { return nb::cast<Tensors>(functions_.loss(Copy(outputs), Copy(targets))); });
}

}  // namespace penstock::python
