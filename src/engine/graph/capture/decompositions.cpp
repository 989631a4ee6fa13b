#include "graph/capture/decompositions.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "graph/capture/capture_error.h"
#include "graph/capture/recorder.h"

namespace penstock {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

// Lets a replacement call the op that it replaces.
using Original = c10::impl::ExcludeDispatchKeyGuard;

// Throws CaptureError unless the tensor has the same values in every run.
void RequireConstant(const Tensor& tensor, std::string_view op) {
  Recorder* const recorder = CurrentRecorder();
  if (recorder == nullptr || recorder->IsConstant(tensor)) return;
  throw CaptureError(
      fmt::format("the stage reads a value out of a tensor ({}), which a graph cannot repeat; keep "
                  "the value in "
                  "a tensor",
                  op));
}

// oneDNN's LSTM keeps a workspace that only its own kernels can read. These are the equations of
// torch.nn.LSTM for one layer and direction; input is [time, batch, features].
std::tuple<Tensor, Tensor, Tensor, Tensor> LstmLayer(
    const Tensor& input, const Tensor& input_weight, const Tensor& hidden_weight,
    const Tensor& input_bias, const Tensor& hidden_bias, const Tensor& first_hidden,
    const Tensor& first_cell, bool reverse, at::IntArrayRef /*batch_sizes*/, std::int64_t /*mode*/,
    std::int64_t /*hidden_size*/, std::int64_t /*layers*/, bool has_biases, bool /*bidirectional*/,
    bool /*batch_first*/, bool /*train*/) {
  const auto bias = [&](const Tensor& of) { return has_biases ? of : Tensor(); };
  const Tensor of_input = at::linear(input, input_weight, bias(input_bias));
  const std::int64_t length = input.size(0);
  Tensor hidden = first_hidden, cell = first_cell;
  std::vector<Tensor> outputs(static_cast<std::size_t>(length));
  for (std::int64_t i = 0; i < length; ++i) {
    const std::int64_t time = reverse ? length - 1 - i : i;
    const Tensor gates =
        of_input.select(0, time) + at::linear(hidden, hidden_weight, bias(hidden_bias));
    const std::vector<Tensor> parts = gates.chunk(4, 1);
    cell = parts[1].sigmoid() * cell + parts[0].sigmoid() * parts[2].tanh();
    hidden = parts[3].sigmoid() * cell.tanh();
    outputs[static_cast<std::size_t>(time)] = hidden;
  }
  return {at::stack(outputs), hidden, cell, at::empty({0}, input.options().dtype(at::kByte))};
}

// An element of a tensor that an op selects, such as the largest. As in autograd, all elements with
// its value get equal shares of the gradient.
class Selected : public Function<Selected> {
 public:
  using Op = Tensor (*)(const Tensor&);

  static Tensor forward(AutogradContext* context, const Tensor& input, std::int64_t op) {
    const Original original(kDecompositions);
    Tensor value = kOps[op](input);
    context->save_for_backward({input, value});
    return value;
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const Tensor &input = saved[0], &value = saved[1];
    const Tensor equal = (input == value).logical_or(input.isnan().logical_and(value.isnan()));
    return {at::where(equal, gradients[0] / equal.sum(), at::zeros({}, gradients[0].options())),
            Tensor()};
  }

  static constexpr Op kOps[] = {[](const Tensor& of) { return at::max(of); },
                                [](const Tensor& of) { return at::min(of); },
                                [](const Tensor& of) { return at::median(of); },
                                [](const Tensor& of) { return at::nanmedian(of); }};
};

template <int op>
Tensor Select(const Tensor& input) {
  if (input.requires_grad()) return Selected::apply(input, op);
  const Original original(kDecompositions);
  return Selected::kOps[op](input);
}

// Returns the products of the elements before each one along a dimension.
Tensor ProductsBefore(const Tensor& input, std::int64_t dim) {
  const Tensor one = at::ones_like(input.narrow(dim, 0, 1));
  return at::cat({one, input.narrow(dim, 0, input.size(dim) - 1)}, dim).cumprod(dim);
}

// Products whose backward, unlike autograd's, does not depend on whether an element is 0.
class ElementProduct : public Function<ElementProduct> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& input, std::int64_t dim) {
    const Original original(kDecompositions);
    context->save_for_backward({input});
    context->saved_data["dim"] = dim;
    return at::prod(input, dim, /*keepdim=*/true);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const Original original(kDecompositions);
    const Tensor input = context->get_saved_variables()[0];
    const std::int64_t dim = context->saved_data["dim"].toInt();
    const Tensor after = ProductsBefore(input.flip(dim), dim).flip(dim);
    return {gradients[0] * (ProductsBefore(input, dim) * after), Tensor()};
  }
};

class CumulativeProduct : public Function<CumulativeProduct> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& input, std::int64_t dim) {
    const Original original(kDecompositions);
    context->save_for_backward({input});
    context->saved_data["dim"] = dim;
    return at::cumprod(input, dim);
  }
  // The gradient of element i is s(i) times the product of all elements before it, with
  // s(i) = g(i) + x(i + 1) s(i + 1).
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const Original original(kDecompositions);
    const Tensor input = context->get_saved_variables()[0];
    const std::int64_t dim = context->saved_data["dim"].toInt();
    std::vector<Tensor> factors(static_cast<std::size_t>(input.size(dim)));
    for (std::int64_t i = input.size(dim); i-- > 0;) {
      const auto index = static_cast<std::size_t>(i);
      factors[index] = gradients[0].select(dim, i);
      if (index + 1 == factors.size()) continue;
      factors[index] = factors[index] + input.select(dim, i + 1) * factors[index + 1];
    }
    return {ProductsBefore(input, dim) * at::stack(factors, dim), Tensor()};
  }
};

// Whether the replaced backward is for this input.
bool HasRealGradient(const Tensor& input) {
  return input.requires_grad() && !input.is_complex() && input.numel() > 0 && input.dim() > 0;
}
Tensor Cast(const Tensor& input, std::optional<at::ScalarType> dtype) {
  return dtype ? input.to(*dtype) : input;
}

Tensor Prod(const Tensor& input, std::optional<at::ScalarType> dtype) {
  if (HasRealGradient(input))
    return ElementProduct::apply(Cast(input, dtype).flatten(), 0).squeeze(0);
  const Original original(kDecompositions);
  return at::prod(input, dtype);
}
Tensor ProdAlong(const Tensor& input, std::int64_t dim, bool keepdim,
                 std::optional<at::ScalarType> dtype) {
  if (HasRealGradient(input)) {
    const Tensor product = ElementProduct::apply(Cast(input, dtype), dim);
    return keepdim ? product : product.squeeze(dim);
  }
  const Original original(kDecompositions);
  return at::prod(input, dim, keepdim, dtype);
}
Tensor Cumprod(const Tensor& input, std::int64_t dim, std::optional<at::ScalarType> dtype) {
  if (HasRealGradient(input)) return CumulativeProduct::apply(Cast(input, dtype), dim);
  const Original original(kDecompositions);
  return at::cumprod(input, dim, dtype);
}

// The op itself also writes its noise into an argument.
Tensor RandomRelu(const Tensor& input, const at::Scalar& lower, const at::Scalar& upper,
                  bool training, std::optional<at::Generator> generator) {
  const Original original(kDecompositions);
  const double low = lower.toDouble(), high = upper.toDouble();
  if (!training) return at::leaky_relu(input, (low + high) / 2);
  const Tensor slope = at::empty_like(input.detach()).uniform_(low, high, std::move(generator));
  return at::where(input <= 0, input * slope, input);
}

// Devices other than CPUs run this op for dropout. It takes no generator, so it is recorded as the
// ops that dropout is on CPUs.
std::tuple<Tensor, Tensor> NativeDropout(const Tensor& input, double p, std::optional<bool> train) {
  const Original original(kDecompositions);
  if (!train.value_or(true) || p == 0) return {input.clone(), at::ones_like(input, at::kBool)};
  Tensor noise = at::empty_like(input.detach()).bernoulli_(1 - p);
  const Tensor mask = noise.to(at::kBool);
  if (p < 1) noise.div_(1 - p);
  return {input * noise, mask};
}

// The op itself checks on CPUs that the classes are in range.
Tensor OneHot(const Tensor& input, std::int64_t classes) {
  const Original original(kDecompositions);
  if (classes <= 0) return at::one_hot(input, classes);
  std::vector<std::int64_t> sizes = input.sizes().vec();
  sizes.push_back(classes);
  return at::zeros(sizes, input.options()).scatter(-1, input.unsqueeze(-1), 1);
}

// Gradients of parameters are dense.
Tensor DenseEmbedding(const Tensor& weight, const Tensor& indices, c10::SymInt padding,
                      bool scale_by_frequency, bool /*sparse*/) {
  const Original original(kDecompositions);
  return at::embedding_symint(weight, indices, std::move(padding), scale_by_frequency);
}
std::tuple<Tensor, Tensor, Tensor, Tensor> DenseEmbeddingBag(
    const Tensor& weight, const Tensor& indices, const Tensor& offsets, bool scale_by_frequency,
    std::int64_t mode, bool /*sparse*/, const std::optional<Tensor>& sample_weights,
    bool include_last, std::int64_t padding) {
  const Original original(kDecompositions);
  return at::_embedding_bag(weight, indices, offsets, scale_by_frequency, mode, /*sparse=*/false,
                            sample_weights, include_last, padding);
}

// These read the memory of a tensor without calling an op.
Tensor CtcLoss(const Tensor& log_probs, const Tensor& targets, const Tensor& input_lengths,
               const Tensor& target_lengths, std::int64_t blank, std::int64_t reduction,
               bool zero_infinity) {
  RequireConstant(input_lengths, "the lengths of ctc_loss");
  RequireConstant(target_lengths, "the lengths of ctc_loss");
  const Original original(kDecompositions);
  return at::ctc_loss(log_probs, targets, input_lengths, target_lengths, blank, reduction,
                      zero_infinity);
}
std::vector<Tensor> TensorSplit(const Tensor& input, const Tensor& sections, std::int64_t dim) {
  RequireConstant(sections, "the indices of tensor_split");
  const Original original(kDecompositions);
  return at::tensor_split(input, sections, dim);
}
std::tuple<Tensor, Tensor> PackPaddedSequence(const Tensor&, const Tensor&, bool) {
  throw CaptureError(
      "the shape of the result of pack_padded_sequence depends on data, which a graph cannot "
      "repeat; pass padded sequences to the module and mask its results");
}

TORCH_LIBRARY_IMPL(_, DeferredInit, library) {
  library.fallback(torch::CppFunction::makeFallthrough());
}

TORCH_LIBRARY_IMPL(aten, DeferredInit, library) {
  library.impl("mkldnn_rnn_layer", &LstmLayer);
  library.impl("max", &Select<0>);
  library.impl("min", &Select<1>);
  library.impl("median", &Select<2>);
  library.impl("nanmedian", &Select<3>);
  library.impl("prod", &Prod);
  library.impl("prod.dim_int", &ProdAlong);
  library.impl("cumprod", &Cumprod);
  library.impl("rrelu", &RandomRelu);
  library.impl("native_dropout", &NativeDropout);
  library.impl("one_hot", &OneHot);
  library.impl("embedding", &DenseEmbedding);
  library.impl("_embedding_bag", &DenseEmbeddingBag);
  library.impl("ctc_loss.Tensor", &CtcLoss);
  library.impl("tensor_split.tensor_indices_or_sections", &TensorSplit);
  library.impl("_pack_padded_sequence", &PackPaddedSequence);
}

}  // namespace
}  // namespace penstock
