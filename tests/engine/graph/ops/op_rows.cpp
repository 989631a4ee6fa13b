#include "tests/engine/graph/ops/op_rows.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>

#include "graph/ops/collective.h"
#include "graph/ops/routing.h"

namespace penstock::testing {

at::Tensor WholeNumbers(std::vector<std::int64_t> sizes, at::ScalarType dtype, int largest) {
  return at::randint(-largest, largest + 1, sizes, at::kFloat).to(dtype);
}

namespace {

using at::Tensor;
using c10::IValue;
using Calls = std::vector<std::vector<Arguments>>;

constexpr at::ScalarType kDtypes[] = {at::kFloat, at::kBFloat16, at::kDouble};
constexpr double kBf16Half = 1.0 / 256;  // half of the last of 8 significant bits
constexpr const char* kIsGradient = "it is the gradient of another op";
constexpr const char* kCpuKernel = "it replaces or supplements a kernel of CPUs";

Tensor Wide(const Tensor& tensor) { return tensor.to(at::kDouble); }
std::int64_t At(const Tensor& counts, std::int64_t i) { return counts[i].item<std::int64_t>(); }

// The draw and the reference of an op of a single rank.
auto Each(std::function<std::vector<Arguments>()> draw) {
  return [draw] {
    Calls calls;
    for (Arguments& arguments : draw()) calls.push_back({std::move(arguments)});
    return calls;
  };
}
auto Alone(std::function<Tensors(const Arguments&)> reference) {
  return [reference](const std::vector<Arguments>& ranks) {
    return std::vector<Tensors>{reference(ranks.front())};
  };
}

// Matmuls of groups: with empty groups, rows after the last group, and two groups per expert.

constexpr std::int64_t kGroupExperts = 3, kIn = 8, kOut = 5, kGroupRows = 9;

// What a call has besides the counts: x or a gradient with the width `left`, and the weight or x.
// Sums are exact in bf16.
struct GroupCall {
  std::int64_t left;
  bool adds = false;    // whether the call adds to a weight's gradient
  bool weight = false;  // whether it reads the weight; else another x
};

std::vector<Arguments> DrawGroups(const GroupCall& shape) {
  std::vector<Arguments> calls;
  for (const at::ScalarType dtype : kDtypes) {
    for (const Tensor& counts : {at::tensor({3, 0, 4}, at::kLong), at::tensor({9, 0, 0}, at::kLong),
                                 at::tensor({2, 1, 0, 0, 3, 2}, at::kLong)}) {
      const Tensor weight = WholeNumbers({kGroupExperts, kOut, kIn}, dtype, 3);
      const Tensor x = WholeNumbers({kGroupRows, kIn}, dtype, 3);
      Arguments& call = calls.emplace_back();
      if (shape.adds) call.emplace_back(weight);
      call.emplace_back(WholeNumbers({kGroupRows, shape.left}, dtype, 3));
      call.emplace_back(shape.weight ? weight : x);
      call.emplace_back(counts);
      if (!shape.weight && !shape.adds) call.emplace_back(kGroupExperts);
    }
  }
  return calls;
}

// Calls visit(expert, first row, rows) for each group.
template <class Visit>
void EachGroup(const Tensor& counts, const Visit& visit) {
  std::int64_t begin = 0;
  for (std::int64_t i = 0; i < counts.numel(); begin += At(counts, i++)) {
    visit(i % kGroupExperts, begin, At(counts, i));
  }
}

Tensors GroupProducts(const Tensor& x, const Tensor& matrices, const Tensor& counts) {
  Tensors parts;
  EachGroup(counts, [&](std::int64_t expert, std::int64_t begin, std::int64_t rows) {
    parts.push_back(Wide(x.narrow(0, begin, rows)).mm(Wide(matrices[expert])));
  });
  parts.push_back(at::zeros({kGroupRows - at::cat(parts).size(0), matrices.size(2)}, at::kDouble));
  return {at::cat(parts).to(x.scalar_type())};
}

Tensors WeightGradients(const Tensor& gradient, const Tensor& x, const Tensor& counts,
                        const Tensor& added) {
  Tensor sum = Wide(added).clone();
  EachGroup(counts, [&](std::int64_t expert, std::int64_t begin, std::int64_t rows) {
    sum[expert] += Wide(gradient.narrow(0, begin, rows)).t().mm(Wide(x.narrow(0, begin, rows)));
  });
  return {sum.to(x.scalar_type())};
}

std::vector<OpRow> GroupedRows() {
  return {
      {.op = "penstock::grouped_linear",
       .draw = Each([] { return DrawGroups({.left = kIn, .weight = true}); }),
       .reference = Alone([](const Arguments& in) {
         return GroupProducts(in[0].toTensor(), in[1].toTensor().mT(), in[2].toTensor());
       }),
       .differentiable = {0, 1}},
      {.op = "penstock::grouped_linear_input",
       .draw = Each([] { return DrawGroups({.left = kOut, .weight = true}); }),
       .reference = Alone([](const Arguments& in) {
         return GroupProducts(in[0].toTensor(), in[1].toTensor(), in[2].toTensor());
       }),
       .no_gradient = kIsGradient},
      {.op = "penstock::grouped_linear_weight",
       .draw = Each([] { return DrawGroups({.left = kOut}); }),
       .reference = Alone([](const Arguments& in) {
         return WeightGradients(in[0].toTensor(), in[1].toTensor(), in[2].toTensor(),
                                at::zeros({kGroupExperts, kOut, kIn}));
       }),
       .no_gradient = kIsGradient},
      {.op = "penstock::grouped_linear_weight_",
       .draw = Each([] { return DrawGroups({.left = kOut, .adds = true}); }),
       .reference = Alone([](const Arguments& in) {
         return WeightGradients(in[1].toTensor(), in[2].toTensor(), in[3].toTensor(),
                                in[0].toTensor());
       }),
       .no_gradient = kIsGradient},
  };
}

// Routing: in the last routings, experts are empty. Rows are longer than the kernels' blocks.

constexpr std::int64_t kSortedTokens = 12, kChoices = 2, kRouted = 4, kSortedWidth = 70;

Tensors DrawRoutings() {
  const Tensor all = at::arange(kSortedTokens * kChoices).view({kSortedTokens, kChoices});
  Tensors routings = {all.remainder(kRouted), at::full_like(all, kRouted - 1),
                      all.remainder(2) * 2};
  for (int i = 0; i < 3; ++i) {  // distinct experts per token
    const Tensor order = at::rand({kSortedTokens, kRouted}).argsort(std::int64_t{-1}, false);
    routings.push_back(order.narrow(-1, 0, kChoices));
  }
  return routings;
}

Tensors SortReference(const Arguments& in) {
  const Tensor chosen = in[0].toTensor();
  const Tensor order = chosen.flatten().argsort(/*stable=*/true, 0, false);
  return {order, order.argsort(true, 0, false).view(chosen.sizes()),
          chosen.flatten().bincount({}, in[1].toInt())};
}

// A routing, and weights whose products are exact.
struct Routed {
  at::ScalarType dtype;
  Tensor weights, order, places;

  Tensor tokens() const { return WholeNumbers({kSortedTokens, kSortedWidth}, dtype); }
  Tensor rows() const { return WholeNumbers({kSortedTokens * kChoices, kSortedWidth}, dtype); }
};

// Draws the call `make` for each type and routing.
auto EachRouting(Arguments (*make)(const Routed&)) {
  return Each([make] {
    std::vector<Arguments> calls;
    for (const at::ScalarType dtype : kDtypes) {
      for (const Tensor& chosen : DrawRoutings()) {
        const Tensors sorted = SortReference({chosen, kRouted});
        const Tensor weights = WholeNumbers({kSortedTokens, kChoices}, at::kFloat) / 8;
        calls.push_back(make({dtype, weights, sorted[0], sorted[1]}));
      }
    }
    return calls;
  });
}

Tensors GatherReference(const Arguments& in) {
  const Tensor x = in[0].toTensor(), order = in[2].toTensor();
  const Tensor rows = Wide(x).index_select(0, order.floor_divide(in[3].toInt()));
  if (in[1].isNone()) return {rows.to(x.scalar_type())};
  const Tensor scale = Wide(in[1].toTensor().flatten().index_select(0, order)).unsqueeze(1);
  return {(rows * scale).to(x.scalar_type())};
}

// By token and choice: its row.
Tensor RowsOfChoices(const Tensor& rows, const Tensor& places) {
  return Wide(rows).index_select(0, places.flatten()).view({kSortedTokens, kChoices, -1});
}

Tensors CombineReference(const Arguments& in) {
  Tensor rows = RowsOfChoices(in[0].toTensor(), in[2].toTensor());
  if (!in[1].isNone()) rows = rows * Wide(in[1].toTensor()).unsqueeze(-1);
  return {rows.sum(1).to(in[0].toTensor().scalar_type())};
}

std::vector<OpRow> RoutingRows() {
  return {
      {.op = "penstock::sort_by_expert",
       .draw = Each([] {
         std::vector<Arguments> calls;
         for (const Tensor& chosen : DrawRoutings()) calls.push_back({chosen, kRouted});
         return calls;
       }),
       .reference = Alone(SortReference),
       .no_gradient = "its results are indices"},
      {.op = "penstock::gather_rows",
       .draw = EachRouting([](const Routed& of) {
         return Arguments{of.tokens(), IValue(), of.order, kChoices};
       }),
       .reference = Alone(GatherReference),
       .differentiable = {0},
       .call =
           [](const Arguments& in) {
             const Tensor order = in[2].toTensor();
             const Tensor places = order.argsort(true, 0, false).view({kSortedTokens, kChoices});
             return GatherRows(in[0].toTensor(), {order, places, {}});
           }},
      {.op = "penstock::gather_rows",
       .draw = EachRouting([](const Routed& of) {
         return Arguments{of.tokens(), of.weights, of.order, kChoices};
       }),
       .reference = Alone(GatherReference),
       .no_gradient = kIsGradient,
       .variant = "_times_weights"},
      {.op = "penstock::combine_rows",
       .draw = EachRouting([](const Routed& of) {
         return Arguments{of.rows(), of.weights, of.places};
       }),
       .reference = Alone(CombineReference),
       .differentiable = {0, 1},
       .call =
           [](const Arguments& in) {
             const Tensor places = in[2].toTensor();
             const Tensor order = places.flatten().argsort(true, 0, false);
             return CombineRows(in[0].toTensor(), in[1].toTensor(), {order, places, {}});
           }},
      {.op = "penstock::combine_rows",
       .draw = EachRouting([](const Routed& of) {
         return Arguments{of.rows(), IValue(), of.places};
       }),
       .reference = Alone(CombineReference),
       .no_gradient = kIsGradient,
       .variant = "_without_weights"},
      {.op = "penstock::row_products",
       .draw = EachRouting([](const Routed& of) {
         return Arguments{of.tokens(), of.rows(), of.places};
       }),
       .reference = Alone([](const Arguments& in) {
         const Tensor rows = RowsOfChoices(in[1].toTensor(), in[2].toTensor());
         return Tensors{(rows * Wide(in[0].toTensor()).unsqueeze(1)).sum(-1).to(at::kFloat)};
       }),
       .no_gradient = kIsGradient},
  };
}

// Documents, packed tensors, the loss and fused kernels.

// Token 0 ends a document. The last view begins in the middle of one.
Tensors DrawDocuments() {
  const auto tokens = [](at::ArrayRef<std::int64_t> values) {
    return at::tensor(values, at::kLong).view({2, -1});
  };
  return {tokens({3, 0, 4, 5, 0, 0, 7, 1, 2, 0, 3, 3, 3, 3}), tokens({0, 1}),
          at::randint(4, {3, 40}, at::kLong), tokens({9, 4, 0, 5, 9, 0, 0, 7}).narrow(1, 1, 3)};
}

Tensors StartsReference(const Arguments& in) {
  const Tensor tokens = in[0].toTensor();
  Tensor starts = at::zeros_like(tokens);
  for (std::int64_t i = 1; i < tokens.size(1); ++i) {
    const Tensor ended = tokens.select(1, i - 1).eq(in[1].toInt());
    starts.select(1, i).copy_(at::where(ended, i, starts.select(1, i - 1)));
  }
  return {starts};
}

Tensors MaskReference(const Arguments& in) {
  const Tensor starts = in[0].toTensor();
  const std::int64_t length = starts.size(1), first = in[1].toInt();
  Tensor mask = at::full({starts.size(0), 1, length, first + length}, -INFINITY, at::kDouble);
  for (std::int64_t sample = 0; sample < starts.size(0); ++sample) {
    for (std::int64_t i = 0; i < length; ++i) {
      const std::int64_t start = At(starts[sample], i);
      mask[sample][0][i].slice(0, start, first + i + 1).zero_();
    }
  }
  return {mask.to(in[2].toScalarType())};
}

constexpr const char* kSiluTimes =
    "loops 8 | 16; out f32[8,16]; %0 load f32 in0 0 [16,1]; %1 silu %0; %2 load f32 in1 0 [16,1]; "
    "%3 mul %1 %2; store %3 f32 out0 0 [16,1]";
constexpr const char* kNegatedSumOfRows =
    "loops 8 | 16; out f32[8,16]; %0 load f32 in0 0 [16,1]; %1 neg %0; store %1 f32 out0 0 [16,1]; "
    "gather %0 f32 out1 0 [0,1]";

std::vector<OpRow> OtherRows() {
  return {
      {.op = "penstock::document_starts",
       .draw = Each([] {
         std::vector<Arguments> calls;
         for (const Tensor& tokens : DrawDocuments()) calls.push_back({tokens, 0});
         return calls;
       }),
       .reference = Alone(StartsReference),
       .no_gradient = "its results are indices"},
      {.op = "penstock::document_mask",
       .draw = Each([] {
         std::vector<Arguments> calls;
         for (const at::ScalarType dtype : kDtypes) {
           for (const Tensor& tokens : DrawDocuments()) {
             const Tensor starts = StartsReference({tokens, 0}).front();
             calls.push_back({starts, 0, dtype});
             calls.push_back({starts.narrow(1, 1, starts.size(1) - 1), 1, dtype});
           }
         }
         return calls;
       }),
       .reference = Alone(MaskReference),
       .no_gradient = "it depends on indices"},
      {.op = "penstock::pack",
       .draw = Each([] {
         std::vector<Arguments> calls;
         for (const at::ScalarType dtype : kDtypes) {
           const Tensors parts = {at::randn({3, 4}), at::randn({5, 2}).t(), at::randn({})};
           calls.push_back({parts, std::vector<std::int64_t>{1, 13, 25}, 30, dtype});
         }
         return calls;
       }),
       .reference = Alone([](const Arguments& in) {
         const Tensors parts = in[0].toTensorVector();
         return Tensors{at::cat({at::zeros({1}), parts[0].flatten(), parts[1].flatten(),
                                 at::zeros({2}), parts[2].flatten(), at::zeros({4})})
                            .to(in[3].toScalarType())};
       }),
       .no_gradient = "it packs gradients"},
      {.op = "penstock::cross_entropy_backward",
       .draw = Each([] {
         std::vector<Arguments> calls;
         for (const std::int64_t used : {5, 3}) {
           Tensor target = at::randint(50, {5}, at::kLong);
           target.slice(0, used).fill_(-100);
           calls.push_back({at::full({}, 0.25), at::randn({5, 50}).log_softmax(-1), target,
                            at::full({}, static_cast<double>(used)), -100});
         }
         return calls;
       }),
       .reference = Alone([](const Arguments& in) {
         const Tensor log_p = in[1].toTensor();
         const Tensor of_log_p =
             at::nll_loss_backward(in[0].toTensor(), log_p, in[2].toTensor(), {},
                                   at::Reduction::Mean, in[4].toInt(), in[3].toTensor());
         return Tensors{at::_log_softmax_backward_data(of_log_p, log_p, -1, at::kFloat)};
       }),
       .tolerance = 1e-6,
       .no_gradient = kIsGradient,
       .no_cuda = kCpuKernel},
      {.op = "penstock::fused",
       .draw = Each([] {
         const Tensors inputs = {at::randn({8, 16}), at::randn({8, 16})};
         return std::vector<Arguments>{Arguments{inputs, kSiluTimes}};
       }),
       .reference = Alone([](const Arguments& in) {
         const Tensors inputs = in[0].toTensorVector();
         return Tensors{at::silu(inputs[0]) * inputs[1]};
       }),
       .tolerance = 1e-6,
       .no_gradient = "it is fused below autograd",
       .no_shapes = "it is fused after all shapes are known"},
      {.op = "penstock::fused_gather",
       .draw = Each([] {
         return std::vector<Arguments>{Arguments{WholeNumbers({16}, at::kFloat),
                                                 Tensors{WholeNumbers({8, 16}, at::kFloat)},
                                                 kNegatedSumOfRows}};
       }),
       .reference = Alone([](const Arguments& in) {
         const Tensor input = in[1].toTensorVector().front();
         return Tensors{-input, in[0].toTensor() + input.sum(0)};
       }),
       .no_gradient = "it is fused below autograd",
       .no_shapes = "it is fused after all shapes are known",
       .no_cuda = kCpuKernel},
  };
}

// Products and attention of bf16, which Bf16Kernels computes in fp32.

// [batch, n, k] by [batch, k, m]: within one block, in several blocks along each dimension, and in
// a batch that does not fit into a block.
constexpr std::array<std::int64_t, 4> kProducts[] = {
    {1, 1, 1, 1}, {3, 7, 5, 9}, {1, 530, 40, 17}, {1, 17, 1030, 530}, {600, 40, 64, 33}};

// How an addend and the output are passed.
enum class Written { kResult, kAddend, kOut };

// Calls of [batch,] n, k, m for factors whose unit stride is along rows, along columns, and along
// neither.
std::vector<Arguments> DrawProducts(bool batched, bool adds, Written written) {
  std::vector<Arguments> calls;
  for (const auto& [batch, n, k, m] : kProducts) {
    const Tensor left = WholeNumbers({batch, n, k}, at::kBFloat16);
    const Tensor right = WholeNumbers({batch, k, m}, at::kBFloat16);
    for (const Tensor& a :
         {left, left.mT().contiguous().mT(), left.repeat({1, 1, 2}).slice(2, 0, k),
          left.unsqueeze(-1).repeat({1, 1, 1, 2}).select(3, 0)}) {
      const Tensor b = a.stride(2) == 1 ? right : right.mT().contiguous().mT();
      std::vector<std::int64_t> sizes = {batch, n, m};
      if (!batched) sizes.erase(sizes.begin());
      Arguments arguments;
      // An addend that is not written to is repeated: rows for addmm, matrices for baddbmm.
      if (adds && written != Written::kResult)
        arguments.emplace_back(WholeNumbers(sizes, at::kBFloat16));
      if (adds && written == Written::kResult) {
        arguments.emplace_back(WholeNumbers({sizes.begin() + 1, sizes.end()}, at::kBFloat16));
      }
      arguments.emplace_back(batched ? a : a[0]);
      arguments.emplace_back(batched ? b : b[0]);
      if (adds) arguments.insert(arguments.end(), {2, 0.5});
      if (written == Written::kOut) arguments.emplace_back(at::full(sizes, NAN, at::kBFloat16));
      calls.push_back(std::move(arguments));
    }
  }
  return calls;
}

OpRow ProductRow(const char* op, bool batched, bool adds, Written written) {
  OpRow row{.op = op,
            .draw = Each([=] { return DrawProducts(batched, adds, written); }),
            .reference = Alone([=](const Arguments& in) {
              const Tensor a = Wide(in[adds].toTensor()), b = Wide(in[adds + 1].toTensor());
              Tensor product = a.matmul(b);
              if (adds) product = 0.5 * product + 2 * Wide(in[0].toTensor());
              return Tensors{product.to(at::kBFloat16)};
            }),
            .no_cuda = kCpuKernel};
  row.differentiable = adds ? std::vector<std::size_t>{0, 1, 2} : std::vector<std::size_t>{0, 1};
  if (written == Written::kAddend) row.differentiable = {1, 2};  // no leaf is changed in place
  if (written == Written::kOut) row.no_gradient = "out= has none";
  return row;
}

// (query, key, value, dropout, causal, mask, scale), some with a mask.
// Heads are a view of a matmul's result, as in models: capture/meta_kernels.h assumes their
// strides.
std::vector<Arguments> DrawAttention() {
  const auto draw = [] { return at::randn({2, 70, 3, 16}).to(at::kBFloat16).transpose(1, 2); };
  const auto draw_dense = [&draw] { return draw().contiguous(); };
  const Tensor mask = at::randn({70, 70}).to(at::kBFloat16);
  return {{draw(), draw(), draw(), 0.0, true, IValue(), IValue()},
          {draw(), draw(), draw(), 0.0, false, mask, 0.3},
          {draw_dense(), draw(), draw(), 0.0, true, IValue(), IValue()},
          {draw(), draw_dense(), draw_dense(), 0.0, true, IValue(), IValue()}};
}

// The output, and the logarithms of the sums of exponentials, in fp32.
Tensors AttentionInFp32(const Arguments& in) {
  const Tensor q = in[0].toTensor().to(at::kFloat), k = in[1].toTensor().to(at::kFloat);
  const double scale = in[6].isNone() ? 1 / std::sqrt(q.size(-1)) : in[6].toDouble();
  Tensor scores = q.matmul(k.mT()) * scale;
  if (in[4].toBool()) {
    scores = scores + at::full({q.size(2), q.size(2)}, -INFINITY).triu(1);
  }
  if (!in[5].isNone()) scores = scores + in[5].toTensor().to(at::kFloat);
  return {scores.softmax(-1).matmul(in[2].toTensor().to(at::kFloat)), scores.logsumexp(-1)};
}

std::vector<OpRow> Bf16Rows() {
  using enum Written;
  return {
      ProductRow("aten::mm", false, false, kResult),
      ProductRow("aten::mm.out", false, false, kOut),
      ProductRow("aten::addmm", false, true, kResult),
      ProductRow("aten::addmm.out", false, true, kOut),
      ProductRow("aten::addmm_", false, true, kAddend),
      ProductRow("aten::bmm", true, false, kResult),
      ProductRow("aten::bmm.out", true, false, kOut),
      ProductRow("aten::baddbmm", true, true, kResult),
      ProductRow("aten::baddbmm.out", true, true, kOut),
      ProductRow("aten::baddbmm_", true, true, kAddend),
      {.op = "aten::_scaled_dot_product_flash_attention_for_cpu",
       .draw = Each(DrawAttention),
       .reference = Alone([](const Arguments& in) {
         const Tensors results = AttentionInFp32(in);
         return Tensors{results[0].to(at::kBFloat16), results[1].detach()};
       }),
       .tolerance = 2 * kBf16Half,
       .differentiable = {0, 1, 2},
       .no_cuda = kCpuKernel},
      {.op = "aten::_scaled_dot_product_flash_attention_for_cpu_backward",
       .draw = Each([] {
         std::vector<Arguments> calls;
         for (Arguments& in : DrawAttention()) {
           const Tensors results = AttentionInFp32(in);
           in.insert(in.begin() + 3, {results[0].to(at::kBFloat16), results[1]});
           in.insert(in.begin(), at::randn({2, 3, 70, 16}).to(at::kBFloat16));
           calls.push_back(std::move(in));
         }
         return calls;
       }),
       .reference = Alone([](const Arguments& in) {
         Arguments forward = {in[1], in[2], in[3], in[6], in[7], in[8], in[9]};
         Tensors leaves;
         for (std::size_t i = 0; i < 3; ++i) {
           leaves.push_back(forward[i].toTensor().detach().requires_grad_());
           forward[i] = leaves.back();
         }
         return torch::autograd::grad({AttentionInFp32(forward)[0]}, leaves,
                                      {in[0].toTensor().to(at::kFloat)});
       }),
       .tolerance = 2 * kBf16Half,
       .no_gradient = kIsGradient,
       .no_cuda = kCpuKernel},
  };
}

}  // namespace

const std::vector<OpRow>& OpRows() {
  static const std::vector<OpRow> rows = [] {
    std::vector<OpRow> all;
    for (const auto& part :
         {GroupedRows(), RoutingRows(), OtherRows(), CollectiveRows(), Bf16Rows()}) {
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }();
  return rows;
}

}  // namespace penstock::testing
