#include "graph/ops/routing.h"

#include <ATen/Dispatch.h>
#include <ATen/OpMathType.h>
#include <ATen/Parallel.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <tuple>
#include <vector>

#include "base/index.h"
#include "graph/ir/graph_tools.h"

namespace penstock {
namespace {

using OptionalTensor = std::optional<at::Tensor>;
using Sorted = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

// Elements per task of a parallel loop.
constexpr std::int64_t kRoutingGrain = 1 << 15;

const float* DataOf(const OptionalTensor& weights) {
  return weights && weights->defined() ? weights->const_data_ptr<float>() : nullptr;
}

// Calls visit(i) for all i below `rows`, whose work is `width` elements each, by several threads.
template <class Visit>
void ForEachRow(std::int64_t rows, std::int64_t width, const Visit& visit) {
  at::parallel_for(0, rows,
                   std::max<std::int64_t>(1, kRoutingGrain / std::max<std::int64_t>(width, 1)),
                   [&](std::int64_t begin, std::int64_t end) {
                     for (std::int64_t i = begin; i < end; ++i) visit(i);
                   });
}

Sorted SortedShapes(const at::Tensor& chosen, std::int64_t experts) {
  const auto options = chosen.options();
  return {at::empty({chosen.numel()}, options), at::empty(chosen.sizes(), options),
          at::empty({experts}, options)};
}

// A counting sort.
Sorted Sort(const at::Tensor& chosen, std::int64_t experts) {
  const at::Tensor dense = chosen.contiguous();
  Sorted sorted = SortedShapes(dense, experts);
  const auto* expert_of = dense.const_data_ptr<std::int64_t>();
  auto* order = std::get<0>(sorted).mutable_data_ptr<std::int64_t>();
  auto* places = std::get<1>(sorted).mutable_data_ptr<std::int64_t>();
  auto* counts = std::get<2>(sorted).zero_().mutable_data_ptr<std::int64_t>();
  const std::int64_t choices = dense.numel();
  for (std::int64_t i = 0; i < choices; ++i) {
    TORCH_CHECK(expert_of[i] >= 0 && expert_of[i] < experts, "penstock::sort_by_expert: expert ",
                expert_of[i], " is out of range: there are ", experts);
    ++counts[expert_of[i]];
  }
  std::vector<std::int64_t> next(Index(experts));
  for (std::int64_t e = 1; e < experts; ++e) next[Index(e)] = next[Index(e - 1)] + counts[e - 1];
  for (std::int64_t i = 0; i < choices; ++i) {
    const std::int64_t row = next[Index(expert_of[i])]++;
    order[row] = i;
    places[i] = row;
  }
  return sorted;
}

at::Tensor GatheredShape(const at::Tensor& x, const OptionalTensor&, const at::Tensor& order,
                         std::int64_t) {
  return at::empty({order.size(0), x.size(1)}, x.options());
}

// Row r of the result is the token of choice order[r], times the choice's weight.
at::Tensor Gather(const at::Tensor& x, const OptionalTensor& weights, const at::Tensor& order,
                  std::int64_t choices) {
  const at::Tensor from = x.contiguous();
  at::Tensor result = GatheredShape(x, weights, order, choices);
  const auto* choice_of = order.const_data_ptr<std::int64_t>();
  const float* scale = DataOf(weights);
  const std::int64_t width = x.size(1);
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, x.scalar_type(), "gather_rows", [&] {
    const auto* in = from.const_data_ptr<scalar_t>();
    auto* out = result.mutable_data_ptr<scalar_t>();
    ForEachRow(order.size(0), width, [&](std::int64_t row) {
      const scalar_t* token = in + choice_of[row] / choices * width;
      scalar_t* to = out + row * width;
      if (scale == nullptr) {
        std::memcpy(to, token, Index(width) * sizeof(scalar_t));
        return;
      }
      const auto factor = static_cast<at::opmath_type<scalar_t>>(scale[choice_of[row]]);
      for (std::int64_t i = 0; i < width; ++i) {
        to[i] = static_cast<scalar_t>(factor * static_cast<at::opmath_type<scalar_t>>(token[i]));
      }
    });
  });
  return result;
}

at::Tensor CombinedShape(const at::Tensor& rows, const OptionalTensor&, const at::Tensor& places) {
  return at::empty({places.size(0), rows.size(1)}, rows.options());
}

at::Tensor SumOfRows(const at::Tensor& rows, const OptionalTensor& weights,
                     const at::Tensor& places) {
  const at::Tensor from = rows.contiguous();
  at::Tensor result = CombinedShape(rows, weights, places);
  const auto* row_of = places.const_data_ptr<std::int64_t>();
  const float* scale = DataOf(weights);
  const std::int64_t width = rows.size(1), choices = places.size(1);
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, rows.scalar_type(), "combine_rows", [&] {
    using Wide = at::opmath_type<scalar_t>;
    const auto* in = from.const_data_ptr<scalar_t>();
    auto* out = result.mutable_data_ptr<scalar_t>();
    constexpr std::int64_t kBlock = 64;  // columns whose sums stay in registers and the first cache
    ForEachRow(places.size(0), width * choices, [&](std::int64_t token) {
      const std::int64_t first = token * choices;
      for (std::int64_t begin = 0; begin < width; begin += kBlock) {
        const std::int64_t count = std::min(kBlock, width - begin);
        Wide sums[kBlock] = {};
        for (std::int64_t choice = first; choice < first + choices; ++choice) {
          const scalar_t* row = in + row_of[choice] * width + begin;
          const Wide factor = scale == nullptr ? Wide(1) : static_cast<Wide>(scale[choice]);
          for (std::int64_t i = 0; i < count; ++i) sums[i] += factor * static_cast<Wide>(row[i]);
        }
        scalar_t* to = out + token * width + begin;
        for (std::int64_t i = 0; i < count; ++i) to[i] = static_cast<scalar_t>(sums[i]);
      }
    });
  });
  return result;
}

at::Tensor ProductsShape(const at::Tensor& x, const at::Tensor&, const at::Tensor& places) {
  return at::empty(places.sizes(), x.options().dtype(at::kFloat));
}

// By choice: the product of its token of x and its row.
at::Tensor RowProducts(const at::Tensor& x, const at::Tensor& rows, const at::Tensor& places) {
  const at::Tensor tokens = x.contiguous(), from = rows.contiguous();
  at::Tensor result = ProductsShape(x, rows, places);
  const auto* row_of = places.const_data_ptr<std::int64_t>();
  auto* products = result.mutable_data_ptr<float>();
  const std::int64_t width = x.size(1), choices = places.size(1);
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, x.scalar_type(), "row_products", [&] {
    using Wide = at::opmath_type<scalar_t>;
    const auto* left = tokens.const_data_ptr<scalar_t>();
    const auto* right = from.const_data_ptr<scalar_t>();
    constexpr std::int64_t kLanes = 16;  // independent sums, so that the loop can be vectorized
    ForEachRow(places.numel(), width, [&](std::int64_t choice) {
      const scalar_t* a = left + choice / choices * width;
      const scalar_t* b = right + row_of[choice] * width;
      Wide sums[kLanes] = {};
      for (std::int64_t i = 0; i < width; ++i) {
        sums[i % kLanes] += static_cast<Wide>(a[i]) * static_cast<Wide>(b[i]);
      }
      Wide sum = 0;
      for (const Wide each : sums) sum += each;
      products[choice] = static_cast<float>(sum);
    });
  });
  return result;
}

TORCH_LIBRARY_FRAGMENT(penstock, library) {
  library.def("sort_by_expert(Tensor chosen, int experts) -> (Tensor, Tensor, Tensor)");
  library.def("gather_rows(Tensor x, Tensor? weights, Tensor order, int choices) -> Tensor");
  library.def("combine_rows(Tensor rows, Tensor? weights, Tensor places) -> Tensor");
  library.def("row_products(Tensor x, Tensor rows, Tensor places) -> Tensor");
}
TORCH_LIBRARY_IMPL(penstock, CPU, library) {
  library.impl("sort_by_expert", Sort);
  library.impl("gather_rows", Gather);
  library.impl("combine_rows", SumOfRows);
  library.impl("row_products", RowProducts);
}
TORCH_LIBRARY_IMPL(penstock, Meta, library) {
  library.impl("sort_by_expert", SortedShapes);
  library.impl("gather_rows", GatheredShape);
  library.impl("combine_rows", CombinedShape);
  library.impl("row_products", ProductsShape);
}

at::Tensor CallGather(const at::Tensor& x, const OptionalTensor& weights, const at::Tensor& order,
                      std::int64_t choices) {
  static const auto op = FindOp("penstock::gather_rows", "")
                             .typed<at::Tensor(const at::Tensor&, const OptionalTensor&,
                                               const at::Tensor&, std::int64_t)>();
  return op.call(x, weights, order, choices);
}

at::Tensor CallCombine(const at::Tensor& rows, const OptionalTensor& weights,
                       const at::Tensor& places) {
  static const auto op =
      FindOp("penstock::combine_rows", "")
          .typed<at::Tensor(const at::Tensor&, const OptionalTensor&, const at::Tensor&)>();
  return op.call(rows, weights, places);
}

at::Tensor CallProducts(const at::Tensor& x, const at::Tensor& rows, const at::Tensor& places) {
  static const auto op =
      FindOp("penstock::row_products", "")
          .typed<at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&)>();
  return op.call(x, rows, places);
}

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct GatherFunction : torch::autograd::Function<GatherFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& order,
                            const at::Tensor& places) {
    context->save_for_backward({places});
    const at::AutoDispatchBelowADInplaceOrView below;
    return CallGather(x, std::nullopt, order, places.size(1));
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const at::Tensor places = context->get_saved_variables()[0];
    return {CallCombine(gradients[0], std::nullopt, places), at::Tensor(), at::Tensor()};
  }
};

struct CombineFunction : torch::autograd::Function<CombineFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& rows,
                            const at::Tensor& weights, const at::Tensor& order,
                            const at::Tensor& places) {
    context->save_for_backward({rows, weights, order, places});
    const at::AutoDispatchBelowADInplaceOrView below;
    return CallCombine(rows, weights, places);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &rows = saved[0], &weights = saved[1], &order = saved[2], &places = saved[3];
    return {CallGather(gradients[0], weights, order, places.size(1)),
            CallProducts(gradients[0], rows, places), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

Routing SortByExpert(const at::Tensor& chosen, std::int64_t experts) {
  static const auto op =
      FindOp("penstock::sort_by_expert", "").typed<Sorted(const at::Tensor&, std::int64_t)>();
  const auto [order, places, counts] = op.call(chosen, experts);
  return {order, places, counts};
}

at::Tensor GatherRows(const at::Tensor& x, const Routing& routing) {
  return GatherFunction::apply(x, routing.order, routing.places);
}

at::Tensor CombineRows(const at::Tensor& rows, const at::Tensor& weights, const Routing& routing) {
  return CombineFunction::apply(rows, weights, routing.order, routing.places);
}

}  // namespace penstock
