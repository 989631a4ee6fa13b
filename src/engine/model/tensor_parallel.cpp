#include "model/tensor_parallel.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <utility>

#include "base/index.h"
#include "base/result.h"
#include "graph/ops/collective.h"

namespace penstock {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct SumFunction : torch::autograd::Function<SumFunction> {
  static torch::Tensor forward(AutogradContext*, const torch::Tensor& x) {
    const at::AutoDispatchBelowADInplaceOrView below;
    return AllReduce(x.contiguous(), kTensorGroup);
  }
  static variable_list backward(AutogradContext*, const variable_list& gradients) {
    return {gradients[0]};
  }
};

struct ShareFunction : torch::autograd::Function<ShareFunction> {
  static torch::Tensor forward(AutogradContext*, const torch::Tensor& x) { return x; }
  static variable_list backward(AutogradContext*, const variable_list& gradients) {
    return {AllReduce(gradients[0].contiguous(), kTensorGroup)};
  }
};

}  // namespace

Layout ParameterPart::LayoutOf(std::vector<std::int64_t> shape) const {
  if (parts == 1) return Layout(std::move(shape));
  shape[Index(dimension)] = whole;
  return Layout(std::move(shape), box());
}

at::Tensor ParameterPart::Of(const at::Tensor& parameter) const {
  const Box of = box();
  return parameter.unflatten(dimension, {blocks, whole / blocks})
      .narrow(dimension + 1, of.first, of.count)
      .flatten(dimension, dimension + 1);
}

at::Tensor ParameterPart::Join(std::span<const at::Tensor> all) const {
  std::vector<at::Tensor> divided;
  for (const at::Tensor& each : all) {
    divided.push_back(each.unflatten(dimension, {blocks, box().count}));
  }
  return at::cat(divided, dimension + 1).flatten(dimension, dimension + 1);
}

ParameterPart Cut::PartOf(std::int64_t dimension, std::int64_t size) const {
  ParameterPart part{.dimension = dimension, .whole = size, .blocks = blocks};
  const std::int64_t of_block = size / blocks;
  const std::int64_t most = units > 0 ? units : of_block;
  part.parts = of == Of::kNothing ? 1 : static_cast<int>(std::min<std::int64_t>(ranks, most));
  PENSTOCK_CHECK(ranks % part.parts == 0 && most % part.parts == 0 && of_block % most == 0,
                 "{} ranks cannot divide {} units of {} indices", ranks, most, of_block);
  part.copies = ranks / part.parts;
  part.part = rank / part.copies;
  return part;
}

torch::Tensor DividedModule::RegisterPart(const char* name, std::vector<std::int64_t> sizes,
                                          const Cut& cut, std::int64_t dimension) {
  if (cut.ranks > 1) {
    const ParameterPart part = cut.PartOf(dimension, sizes[Index(dimension)]);
    sizes[Index(dimension)] = part.box().count * part.blocks;
    parts_.emplace(name, part);
  }
  return register_parameter(name, at::empty(sizes));
}

std::map<std::string, ParameterPart> PartsOf(const torch::nn::Module& stage) {
  std::map<std::string, ParameterPart> parts;
  for (const auto& module : stage.named_modules()) {
    const auto* const divided = dynamic_cast<const DividedModule*>(module.value().get());
    if (divided == nullptr) continue;
    for (const auto& [name, part] : divided->parts()) {
      parts.emplace(module.key().empty() ? name : module.key() + "." + name, part);
    }
  }
  return parts;
}

torch::Tensor SumOverRanks(const torch::Tensor& x, int ranks) {
  return ranks == 1 ? x : SumFunction::apply(x);
}

torch::Tensor ShareAmongRanks(const torch::Tensor& x, int ranks) {
  return ranks == 1 ? x : ShareFunction::apply(x);
}

}  // namespace penstock
