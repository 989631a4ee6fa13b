#include "graph/ops/grouped_linear.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <vector>

#include "base/index.h"
#include "graph/ir/graph_tools.h"

namespace penstock {
namespace {

// Calls visit(expert, first row, rows) for each group that has rows. Returns the rows of all. On a
// device, the host waits for the counts.
template <class Visit>
std::int64_t ForEachGroup(const at::Tensor& counts, std::int64_t experts, std::int64_t rows,
                          const Visit& visit) {
  const at::Tensor here = counts.cpu();
  const auto* lengths = here.const_data_ptr<std::int64_t>();
  std::int64_t begin = 0;
  for (std::int64_t i = 0; i < counts.numel(); ++i) {
    const std::int64_t length = lengths[i];
    TORCH_CHECK(length >= 0 && length <= rows - begin, "penstock::grouped_linear: group ", i,
                " has ", length, " rows, but only ", rows - begin, " are left");
    if (length > 0) visit(i % experts, begin, length);
    begin += length;
  }
  return begin;
}

// Multiplies each group by the matrix of its expert: [N, a] by [experts, a, b].
at::Tensor Multiply(const at::Tensor& x, const at::Tensor& matrices, const at::Tensor& counts) {
  const std::int64_t rows = x.size(0);
  at::Tensor result = at::empty({rows, matrices.size(2)}, x.options());
  const std::int64_t used = ForEachGroup(
      counts, matrices.size(0), rows, [&](std::int64_t expert, std::int64_t begin, std::int64_t n) {
        at::Tensor part = result.narrow(0, begin, n);
        at::mm_out(part, x.narrow(0, begin, n), matrices.select(0, expert));
      });
  result.narrow(0, used, rows - used).zero_();
  return result;
}

at::Tensor Forward(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& counts) {
  return Multiply(x, weight.transpose(1, 2), counts);
}

at::Tensor InputGradient(const at::Tensor& gradient, const at::Tensor& weight,
                         const at::Tensor& counts) {
  return Multiply(gradient, weight, counts);
}

at::Tensor& AddWeightGradient(at::Tensor& sum, const at::Tensor& gradient, const at::Tensor& x,
                              const at::Tensor& counts) {
  ForEachGroup(
      counts, sum.size(0), x.size(0), [&](std::int64_t expert, std::int64_t begin, std::int64_t n) {
        sum.select(0, expert).addmm_(gradient.narrow(0, begin, n).t(), x.narrow(0, begin, n));
      });
  return sum;
}

at::Tensor WeightShape(const at::Tensor& gradient, const at::Tensor& x, const at::Tensor&,
                       std::int64_t experts) {
  return at::empty({experts, gradient.size(1), x.size(1)}, x.options());
}

at::Tensor WeightGradient(const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& counts,
                          std::int64_t experts) {
  at::Tensor result = WeightShape(gradient, x, counts, experts);
  std::vector<bool> is_set(Index(experts));
  ForEachGroup(counts, experts, x.size(0),
               [&](std::int64_t expert, std::int64_t begin, std::int64_t n) {
                 at::Tensor matrix = result.select(0, expert);
                 const at::Tensor left = gradient.narrow(0, begin, n).t();
                 const at::Tensor right = x.narrow(0, begin, n);
                 if (is_set[Index(expert)]) {
                   matrix.addmm_(left, right);
                 } else {
                   at::mm_out(matrix, left, right);
                 }
                 is_set[Index(expert)] = true;
               });
  for (std::int64_t expert = 0; expert < experts; ++expert) {
    if (!is_set[Index(expert)]) result.select(0, expert).zero_();
  }
  return result;
}

at::Tensor ForwardShape(const at::Tensor& x, const at::Tensor& weight, const at::Tensor&) {
  return at::empty({x.size(0), weight.size(1)}, x.options());
}

at::Tensor InputShape(const at::Tensor& gradient, const at::Tensor& weight, const at::Tensor&) {
  return at::empty({gradient.size(0), weight.size(2)}, gradient.options());
}

at::Tensor& AddShape(at::Tensor& sum, const at::Tensor&, const at::Tensor&, const at::Tensor&) {
  return sum;
}

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

auto OpOfMatrices(const char* name) {
  return FindOp(name, "")
      .typed<at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&)>();
}

at::Tensor CallForward(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& counts) {
  static const auto op = OpOfMatrices("penstock::grouped_linear");
  return op.call(x, weight, counts);
}

struct GroupedLinearFunction : torch::autograd::Function<GroupedLinearFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const at::Tensor& counts) {
    context->save_for_backward({x, weight, counts});
    const at::AutoDispatchBelowADInplaceOrView below;
    return CallForward(x.contiguous(), weight, counts);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    static const auto input = OpOfMatrices("penstock::grouped_linear_input");
    static const auto weight_op = FindOp("penstock::grouped_linear_weight", "")
                                      .typed<at::Tensor(const at::Tensor&, const at::Tensor&,
                                                        const at::Tensor&, std::int64_t)>();
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], &counts = saved[2];
    const at::Tensor gradient = gradients[0].contiguous();
    variable_list results(3);
    if (context->needs_input_grad(0)) results[0] = input.call(gradient, weight, counts);
    if (context->needs_input_grad(1)) {
      results[1] = weight_op.call(gradient, x, counts, weight.size(0));
    }
    return results;
  }
};

at::Tensor WithGradients(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& counts) {
  return GroupedLinearFunction::apply(x, weight, counts);
}

TORCH_LIBRARY_FRAGMENT(penstock, library) {
  library.def("grouped_linear(Tensor x, Tensor weight, Tensor counts) -> Tensor");
  library.def("grouped_linear_input(Tensor gradient, Tensor weight, Tensor counts) -> Tensor");
  library.def(
      "grouped_linear_weight(Tensor gradient, Tensor x, Tensor counts, int experts) -> Tensor");
  library.def(
      "grouped_linear_weight_(Tensor(a!) sum, Tensor gradient, Tensor x, Tensor counts) -> "
      "Tensor(a!)");
}
TORCH_LIBRARY_IMPL(penstock, CompositeExplicitAutograd, library) {  // of all devices
  library.impl("grouped_linear", Forward);
  library.impl("grouped_linear_input", InputGradient);
  library.impl("grouped_linear_weight", WeightGradient);
  library.impl("grouped_linear_weight_", AddWeightGradient);
}
TORCH_LIBRARY_IMPL(penstock, Meta, library) {
  library.impl("grouped_linear", ForwardShape);
  library.impl("grouped_linear_input", InputShape);
  library.impl("grouped_linear_weight", WeightShape);
  library.impl("grouped_linear_weight_", AddShape);
}
TORCH_LIBRARY_IMPL(penstock, Autograd, library) { library.impl("grouped_linear", WithGradients); }

}  // namespace

at::Tensor GroupedLinear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& counts) {
  return CallForward(x, weight, counts);
}

}  // namespace penstock
