#include "model/tensor_parallel.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/log.h>
#include <ATen/ops/masked_fill.h>
#include <ATen/ops/ne.h>
#include <ATen/ops/scatter_add.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/sum.h>
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

// Collectives divide the first dimension, and tokens are along the second.
torch::Tensor GatherTokens(const torch::Tensor& x, std::int64_t ranks) {
  return AllGather(x.transpose(0, 1).contiguous(), static_cast<int>(ranks), kTensorGroup)
      .transpose(0, 1);
}
torch::Tensor ScatterTokens(const torch::Tensor& x, std::int64_t ranks) {
  return ReduceScatter(x.transpose(0, 1).contiguous(), static_cast<int>(ranks), kTensorGroup)
      .transpose(0, 1);
}

struct ShareFunction : torch::autograd::Function<ShareFunction> {
  static torch::Tensor forward(AutogradContext*, const torch::Tensor& x) { return x; }
  static variable_list backward(AutogradContext*, const variable_list& gradients) {
    return {AllReduce(gradients[0].contiguous(), kTensorGroup)};
  }
};

struct ScatterFunction : torch::autograd::Function<ScatterFunction> {
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& x,
                               std::int64_t ranks) {
    context->saved_data["ranks"] = ranks;
    const at::AutoDispatchBelowADInplaceOrView below;
    return ScatterTokens(x, ranks);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    return {GatherTokens(gradients[0], context->saved_data["ranks"].toInt()), torch::Tensor()};
  }
};

// `rank` is below 0 if the ranks' gradients are added.
struct GatherFunction : torch::autograd::Function<GatherFunction> {
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& x, std::int64_t ranks,
                               std::int64_t rank) {
    context->saved_data["ranks"] = ranks;
    context->saved_data["rank"] = rank;
    const at::AutoDispatchBelowADInplaceOrView below;
    return GatherTokens(x, ranks);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const std::int64_t ranks = context->saved_data["ranks"].toInt();
    const std::int64_t rank = context->saved_data["rank"].toInt();
    const std::int64_t tokens = gradients[0].size(1) / ranks;
    return {rank < 0 ? ScatterTokens(gradients[0], ranks)
                     : gradients[0].narrow(1, rank * tokens, tokens),
            torch::Tensor(), torch::Tensor()};
  }
};

// The cross-entropy of each row of logits [N, vocabulary / ranks], whose first column is token
// `first`: log(sum(exp(logits))) - logits[target], both sums over the ranks.
struct CrossEntropyFunction : torch::autograd::Function<CrossEntropyFunction> {
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& logits,
                               const torch::Tensor& targets, std::int64_t first,
                               std::int64_t ranks) {
    const at::AutoDispatchBelowADInplaceOrView below;
    const torch::Tensor own_maximum = at::amax(logits, 1).unsqueeze(0);
    const torch::Tensor maximum =
        at::amax(AllGather(own_maximum, static_cast<int>(ranks), kTensorGroup), 0);
    const torch::Tensor shifted = logits - maximum.unsqueeze(1);
    const torch::Tensor exponentials = at::exp(shifted);
    const torch::Tensor columns = targets - first;
    const torch::Tensor inside = at::clamp(columns, 0, logits.size(1) - 1).unsqueeze(1);
    const torch::Tensor other = at::ne(columns.unsqueeze(1), inside);
    const torch::Tensor target = at::masked_fill(at::gather(shifted, 1, inside), other, 0);
    const torch::Tensor sums =
        AllReduce(at::stack({at::sum(exponentials, 1), target.squeeze(1)}), kTensorGroup);
    const torch::Tensor sum = sums.select(0, 0);
    context->save_for_backward({exponentials / sum.unsqueeze(1), inside, other});
    return at::log(sum) - sums.select(0, 1);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const torch::Tensor gradient = gradients[0].unsqueeze(1);
    const torch::Tensor of_target = at::masked_fill(-gradient, saved[2], 0);
    return {at::scatter_add(saved[0] * gradient, 1, saved[1], of_target), torch::Tensor(),
            torch::Tensor(), torch::Tensor()};
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
  part.parts = of == Of::kNothing ? 1 : static_cast<int>(std::min<std::int64_t>(place.ranks, most));
  PENSTOCK_CHECK(place.ranks % part.parts == 0 && most % part.parts == 0 && of_block % most == 0,
                 "{} ranks cannot divide {} units of {} indices", place.ranks, most, of_block);
  part.copies = place.ranks / part.parts;
  part.part = place.rank / part.copies;
  return part;
}

torch::Tensor DividedModule::RegisterPart(const char* name, std::vector<std::int64_t> sizes,
                                          const Cut& cut, std::int64_t dimension) {
  if (cut.place.ranks > 1) {
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

torch::Tensor SumOverRanks(const torch::Tensor& x, const TensorPlace& place) {
  if (place.ranks == 1) return x;
  if (!place.divides_tokens) return SumForAll(x, kTensorGroup);
  return ScatterFunction::apply(x, std::int64_t{place.ranks});
}

torch::Tensor ShareAmongRanks(const torch::Tensor& x, const TensorPlace& place) {
  if (place.ranks == 1) return x;
  if (!place.divides_tokens) return ShareFunction::apply(x);
  return GatherFunction::apply(x, std::int64_t{place.ranks}, std::int64_t{-1});
}

torch::Tensor AllTokens(const torch::Tensor& x, const TensorPlace& place) {
  if (!place.divides_tokens) return x;
  return GatherFunction::apply(x, std::int64_t{place.ranks}, std::int64_t{place.rank});
}

torch::Tensor OwnTokens(const torch::Tensor& x, std::int64_t dimension, const TensorPlace& place) {
  if (!place.divides_tokens) return x;
  const std::int64_t tokens = x.size(dimension) / place.ranks;
  return x.narrow(dimension, place.rank * tokens, tokens);
}

torch::Tensor DividedCrossEntropy(const torch::Tensor& logits, const torch::Tensor& targets,
                                  const Cut& cut, const ContextPlace& context) {
  const torch::Tensor rows = logits.to(at::kFloat).reshape({-1, logits.size(-1)});
  const torch::Tensor flat = targets.reshape({-1});
  const torch::Tensor losses =
      cut.place.ranks == 1
          ? at::cross_entropy_loss(rows, flat, {}, at::Reduction::None)
          : CrossEntropyFunction::apply(rows, flat, cut.place.rank * logits.size(-1),
                                        std::int64_t{cut.place.ranks});
  const torch::Tensor sum = losses.masked_fill(flat.lt(0), 0).sum(), count = flat.ge(0).sum();
  if (context.ranks == 1) return sum / count;
  const torch::Tensor of_all = SumOverContext(at::stack({sum, count.to(at::kFloat)}), context);
  return of_all.select(0, 0) / of_all.select(0, 1);
}

}  // namespace penstock
