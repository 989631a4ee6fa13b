// The ops of this folder for devices other than CPUs, as ops of ATen. The kernels for CPUs stand
// where the ops are defined.
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cummax.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <limits>
#include <optional>
#include <tuple>

namespace penstock {
namespace {

// Returns the type that sums are computed in.
at::ScalarType WideOf(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

at::TensorOptions IndicesLike(const at::Tensor& tensor) {
  return tensor.options().dtype(at::kLong);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> SortGeneric(const at::Tensor& chosen,
                                                           std::int64_t experts) {
  const auto [sorted, order] =
      at::sort(chosen.flatten(), /*stable=*/true, /*dim=*/0, /*descending=*/false);
  at::Tensor places = at::empty_like(order);
  places.scatter_(0, order, at::arange(order.numel(), IndicesLike(chosen)));
  const at::Tensor ends = at::searchsorted(sorted, at::arange(experts + 1, IndicesLike(chosen)));
  return {order, places.view(chosen.sizes()),
          ends.narrow(0, 1, experts).sub(ends.narrow(0, 0, experts))};
}

at::Tensor GatherGeneric(const at::Tensor& x, const std::optional<at::Tensor>& weights,
                         const at::Tensor& order, std::int64_t choices) {
  const at::Tensor rows = x.index_select(0, order.floor_divide(choices));
  if (!weights || !weights->defined()) return rows;
  const at::Tensor scale = weights->flatten().index_select(0, order).unsqueeze(1);
  return rows.to(WideOf(x)).mul(scale).to(x.scalar_type());
}

// Adds in the order of the choices.
at::Tensor CombineGeneric(const at::Tensor& rows, const std::optional<at::Tensor>& weights,
                          const at::Tensor& places) {
  at::Tensor sum = at::zeros({places.size(0), rows.size(1)}, rows.options().dtype(WideOf(rows)));
  for (std::int64_t choice = 0; choice < places.size(1); ++choice) {
    const at::Tensor row = rows.index_select(0, places.select(1, choice)).to(WideOf(rows));
    if (weights && weights->defined()) {
      sum.addcmul_(row, weights->select(1, choice).unsqueeze(1));
    } else {
      sum.add_(row);
    }
  }
  return sum.to(rows.scalar_type());
}

at::Tensor ProductsGeneric(const at::Tensor& x, const at::Tensor& rows, const at::Tensor& places) {
  const at::Tensor of_choices = rows.index_select(0, places.flatten()).to(WideOf(x));
  const at::Tensor tokens = x.to(WideOf(x)).unsqueeze(1);
  return of_choices.view({places.size(0), places.size(1), -1}).mul(tokens).sum(-1).to(at::kFloat);
}

at::Tensor StartsGeneric(const at::Tensor& tokens, std::int64_t end) {
  const at::Tensor next = at::arange(1, tokens.size(1) + 1, IndicesLike(tokens));
  const at::Tensor zero = at::zeros({}, IndicesLike(tokens));
  const at::Tensor after = at::where(tokens.eq(end), next, zero);
  const at::Tensor first = at::zeros({tokens.size(0), 1}, IndicesLike(tokens));
  const at::Tensor shifted = at::cat({first, after.narrow(1, 0, tokens.size(1) - 1)}, 1);
  return std::get<0>(at::cummax(shifted, 1));
}

at::Tensor MaskGeneric(const at::Tensor& starts, std::int64_t first, at::ScalarType dtype) {
  const at::Tensor key = at::arange(first + starts.size(1), IndicesLike(starts));
  const at::Tensor own = key.narrow(0, first, starts.size(1)).unsqueeze(1);
  const at::Tensor visible = key.ge(starts.unsqueeze(2)).logical_and(key.le(own)).unsqueeze(1);
  const auto options = starts.options().dtype(dtype);
  return at::where(visible, at::zeros({}, options),
                   at::full({}, -std::numeric_limits<double>::infinity(), options));
}

TORCH_LIBRARY_IMPL(penstock, CompositeExplicitAutograd, library) {
  library.impl("sort_by_expert", SortGeneric);
  library.impl("gather_rows", GatherGeneric);
  library.impl("combine_rows", CombineGeneric);
  library.impl("row_products", ProductsGeneric);
  library.impl("document_starts", StartsGeneric);
  library.impl("document_mask", MaskGeneric);
}

}  // namespace
}  // namespace penstock
