#include "graph/ops/pack.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include "graph/ir/graph_tools.h"

namespace penstock {
namespace {

at::Tensor Pack(at::TensorList parts, at::IntArrayRef starts, std::int64_t size,
                at::ScalarType dtype) {
  TORCH_CHECK(parts.size() == starts.size(), "penstock::pack: ", parts.size(), " parts have ",
              starts.size(), " starts");
  at::Tensor packed = at::zeros({size}, parts.front().options().dtype(dtype));
  for (std::size_t i = 0; i < parts.size(); ++i) {
    packed.narrow(0, starts[i], parts[i].numel()).view(parts[i].sizes()).copy_(parts[i]);
  }
  return packed;
}

at::Tensor PackShape(at::TensorList parts, at::IntArrayRef, std::int64_t size,
                     at::ScalarType dtype) {
  return at::empty({size}, parts.front().options().dtype(dtype));
}

TORCH_LIBRARY_FRAGMENT(penstock, library) {
  library.def("pack(Tensor[] parts, int[] starts, int size, ScalarType dtype) -> Tensor");
}
TORCH_LIBRARY_IMPL(penstock, CompositeExplicitAutograd, library) { library.impl("pack", Pack); }
TORCH_LIBRARY_IMPL(penstock, Meta, library) { library.impl("pack", PackShape); }

}  // namespace

c10::OperatorHandle PackOp() { return FindOp("penstock::pack", ""); }

}  // namespace penstock
