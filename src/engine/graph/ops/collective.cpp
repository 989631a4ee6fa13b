// Each op is a struct: Describe checks the arguments and returns the call without its tensors, and
// RowsOf returns the rows of the result.
#include "graph/ops/collective.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <string>

#include "base/index.h"
#include "graph/ir/graph_tools.h"
#include "graph/ops/collective_endpoint.h"
#include "graph/ops/collective_forms.h"

namespace penstock {
namespace {

std::int64_t Rows(const at::Tensor& x) { return x.dim() == 0 ? 0 : x.size(0); }

std::size_t BytesPerRow(const at::Tensor& x) {
  if (x.dim() == 0) return 0;
  const at::IntArrayRef row = x.sizes().slice(1);
  return std::accumulate(row.begin(), row.end(), x.element_size(), std::multiplies<std::size_t>());
}

void RequireRanks(std::int64_t ranks, std::int64_t group, std::string_view op) {
  const int joined = RanksOfGroup(group);
  if (joined == ranks) return;
  throw std::runtime_error(
      fmt::format("{}: group {} has {} ranks instead of {}", op, group, joined, ranks));
}

void RequireSplit(const at::Tensor& x, std::int64_t ranks, std::string_view op) {
  if (x.dim() > 0 && Rows(x) % ranks == 0) return;
  throw std::runtime_error(
      fmt::format("{}: {} ranks cannot split {} rows evenly", op, ranks, Rows(x)));
}

ElementType ElementTypeOf(const at::Tensor& x) {
  switch (x.scalar_type()) {
    case at::kFloat:
      return ElementType::kFloat32;
    case at::kBFloat16:
      return ElementType::kBfloat16;
    case at::kDouble:
      return ElementType::kFloat64;
    case at::kLong:
      return ElementType::kInt64;
    default:
      throw std::runtime_error(
          fmt::format("sums of {} are not supported; use float32, bfloat16, float64 or int64",
                      c10::toString(x.scalar_type())));
  }
}

struct AllGatherOp {
  static constexpr const char* kName = "all_gather";
  static std::int64_t RowsOf(const at::Tensor& x, std::int64_t ranks) { return ranks * Rows(x); }
  static CollectiveCall Describe(const at::Tensor&, std::int64_t ranks, std::int64_t group) {
    RequireRanks(ranks, group, kName);
    return {.kind = CollectiveKind::kAllGather};
  }
};

struct ReduceScatterOp {
  static constexpr const char* kName = "reduce_scatter";
  static std::int64_t RowsOf(const at::Tensor& x, std::int64_t ranks) { return Rows(x) / ranks; }
  static CollectiveCall Describe(const at::Tensor& x, std::int64_t ranks, std::int64_t group) {
    RequireRanks(ranks, group, kName);
    RequireSplit(x, ranks, kName);
    return {.kind = CollectiveKind::kReduceScatter, .type = ElementTypeOf(x)};
  }
};

struct AllReduceOp {
  static constexpr const char* kName = "all_reduce";
  static std::int64_t RowsOf(const at::Tensor& x) { return Rows(x); }
  static CollectiveCall Describe(const at::Tensor& x, std::int64_t) {
    return {.kind = CollectiveKind::kAllReduce, .type = ElementTypeOf(x)};
  }
};

struct BroadcastOp {
  static constexpr const char* kName = "broadcast";
  static std::int64_t RowsOf(const at::Tensor& x, std::int64_t) { return Rows(x); }
  static CollectiveCall Describe(const at::Tensor&, std::int64_t root, std::int64_t) {
    return {.kind = CollectiveKind::kBroadcast, .root = static_cast<int>(root)};
  }
};

struct ReduceOp {
  static constexpr const char* kName = "reduce";
  static std::int64_t RowsOf(const at::Tensor& x, std::int64_t) { return Rows(x); }
  static CollectiveCall Describe(const at::Tensor& x, std::int64_t root, std::int64_t) {
    return {
        .kind = CollectiveKind::kReduce, .type = ElementTypeOf(x), .root = static_cast<int>(root)};
  }
};

struct AllToAllOp {
  static constexpr const char* kName = "all_to_all";
  static std::int64_t RowsOf(const at::Tensor& x) { return Rows(x); }
  static CollectiveCall Describe(const at::Tensor& x, std::int64_t group) {
    const int ranks = RanksOfGroup(group);
    RequireSplit(x, ranks, kName);
    const std::vector<std::size_t> blocks(Index(ranks), x.nbytes() / Index(ranks));
    return {.kind = CollectiveKind::kAllToAll, .send_bytes = blocks, .receive_bytes = blocks};
  }
};

struct UnevenAllToAllOp {
  static constexpr const char* kName = "all_to_all_uneven";
  static std::int64_t RowsOf(const at::Tensor&, at::IntArrayRef, at::IntArrayRef received) {
    return std::accumulate(received.begin(), received.end(), std::int64_t{0});
  }
  static CollectiveCall Describe(const at::Tensor& x, at::IntArrayRef sent,
                                 at::IntArrayRef received, std::int64_t) {
    CollectiveCall call{.kind = CollectiveKind::kAllToAll};
    for (const std::int64_t rows : sent) call.send_bytes.push_back(Index(rows) * BytesPerRow(x));
    for (const std::int64_t rows : received) {
      call.receive_bytes.push_back(Index(rows) * BytesPerRow(x));
    }
    return call;
  }
};

// The counts are in tensors, so that each run of a graph has its own.
struct RowsAllToAllOp {
  static constexpr const char* kName = "all_to_all_rows";
  static std::int64_t RowsOf(const at::Tensor& x, const at::Tensor&, const at::Tensor& received,
                             std::int64_t rows) {
    if (rows >= 0) return rows;
    if (x.is_meta() || CollectivesDisabled()) return Rows(x);
    const at::Tensor counts = received.cpu();
    return SumOf(counts.const_data_ptr<std::int64_t>(), counts.numel());
  }
  static CollectiveCall Describe(const at::Tensor& x, const at::Tensor& sent,
                                 const at::Tensor& received, std::int64_t, std::int64_t group) {
    const int ranks = RanksOfGroup(group);
    const std::size_t row = BytesPerRow(x);
    return {.kind = CollectiveKind::kAllToAll,
            .send_bytes = BytesByRank(sent, ranks, row),
            .receive_bytes = BytesByRank(received, ranks, row)};
  }

 private:
  static std::int64_t SumOf(const std::int64_t* counts, std::int64_t size) {
    return std::accumulate(counts, counts + size, std::int64_t{0});
  }
  // `counts` has equally many numbers of rows for each rank.
  static std::vector<std::size_t> BytesByRank(const at::Tensor& given, int ranks, std::size_t row) {
    RequireSplit(given, ranks, kName);
    const at::Tensor counts = given.cpu();
    const std::int64_t of_rank = counts.numel() / ranks;
    const auto* count = counts.const_data_ptr<std::int64_t>();
    std::vector<std::size_t> bytes;
    for (int rank = 0; rank < ranks; ++rank, count += of_rank) {
      bytes.push_back(Index(SumOf(count, of_rank)) * row);
    }
    return bytes;
  }
};

// The kernels of an op that has the arguments Args between x and the group.
template <class Op, class... Args>
struct Kernels : CollectiveForms<Kernels<Op, Args...>, Args...> {
  static constexpr const char* kName = Op::kName;

  static at::Tensor Empty(const at::Tensor& x, Args... args) {
    std::vector<std::int64_t> sizes = x.sizes().vec();
    if (!sizes.empty()) sizes[0] = Op::RowsOf(x, args...);
    return at::empty(sizes, x.options());
  }
  static std::int64_t StartOn(std::int64_t group, const at::Tensor& x, Args... args) {
    const CollectiveCall call = Op::Describe(x, args..., group);
    at::Tensor result = Empty(x, args...);
    if (call.kind == CollectiveKind::kBroadcast) result.copy_(x);
    if (call.kind == CollectiveKind::kReduce) result.zero_();  // the root's is overwritten
    return StartOnGroup(group, call, x, result);
  }
  static at::Tensor WaitOn(std::int64_t group, std::int64_t ticket) {
    return WaitOnGroup(group, ticket);
  }
};

using AllGatherKernels = Kernels<AllGatherOp, std::int64_t>;
using ReduceScatterKernels = Kernels<ReduceScatterOp, std::int64_t>;
using AllReduceKernels = Kernels<AllReduceOp>;
using AllToAllKernels = Kernels<AllToAllOp>;
using UnevenAllToAllKernels = Kernels<UnevenAllToAllOp, at::IntArrayRef, at::IntArrayRef>;
using RowsAllToAllKernels =
    Kernels<RowsAllToAllOp, const at::Tensor&, const at::Tensor&, std::int64_t>;
using BroadcastKernels = Kernels<BroadcastOp, std::int64_t>;
using ReduceKernels = Kernels<ReduceOp, std::int64_t>;

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using IntList = std::vector<std::int64_t>;

// A collective and its gradient, which is the same collective with its two lists swapped, or the
// transposed collective. An op with one number has it in the first list.
enum class Differentiable : std::int64_t {
  kAllGather,
  kReduceScatter,
  kAllReduce,
  kAllToAll,
  kUnevenAllToAll,
  kBroadcast,
  kReduce,
};

at::Tensor CallDifferentiable(Differentiable op, const at::Tensor& x, const IntList& first,
                              const IntList& second, int group) {
  switch (op) {
    case Differentiable::kAllGather:
      return AllGather(x, static_cast<int>(first.front()), group);
    case Differentiable::kReduceScatter:
      return ReduceScatter(x, static_cast<int>(first.front()), group);
    case Differentiable::kAllReduce:
      return AllReduce(x, group);
    case Differentiable::kAllToAll:
      return AllToAll(x, group);
    case Differentiable::kBroadcast:
      return Broadcast(x, static_cast<int>(first.front()), group);
    case Differentiable::kReduce:
      return Reduce(x, static_cast<int>(first.front()), group);
    case Differentiable::kUnevenAllToAll:
      break;
  }
  return AllToAll(x, first, second, group);
}

Differentiable Transposed(Differentiable op) {
  if (op == Differentiable::kAllGather) return Differentiable::kReduceScatter;
  if (op == Differentiable::kReduceScatter) return Differentiable::kAllGather;
  if (op == Differentiable::kBroadcast) return Differentiable::kReduce;
  if (op == Differentiable::kReduce) return Differentiable::kBroadcast;
  return op;
}

struct CollectiveFunction : torch::autograd::Function<CollectiveFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, Differentiable op,
                            const IntList& first, const IntList& second, std::int64_t group) {
    context->saved_data["op"] = static_cast<std::int64_t>(op);
    context->saved_data["first"] = first;
    context->saved_data["second"] = second;
    context->saved_data["group"] = group;
    const at::AutoDispatchBelowADInplaceOrView below;
    return CallDifferentiable(op, x.contiguous(), first, second, static_cast<int>(group));
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    auto& saved = context->saved_data;
    const auto op = Transposed(static_cast<Differentiable>(saved["op"].toInt()));
    const IntList first = saved["first"].toIntVector();
    const IntList second = saved["second"].toIntVector();
    const bool swaps = op == Differentiable::kUnevenAllToAll;
    const at::Tensor gradient =
        CallDifferentiable(op, gradients[0], swaps ? second : first, swaps ? first : second,
                           static_cast<int>(saved["group"].toInt()));
    return {gradient, at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

struct SumFunction : torch::autograd::Function<SumFunction> {
  static at::Tensor forward(AutogradContext*, const at::Tensor& x, std::int64_t group) {
    const at::AutoDispatchBelowADInplaceOrView below;
    return AllReduce(x.contiguous(), static_cast<int>(group));
  }
  static variable_list backward(AutogradContext*, const variable_list& gradients) {
    return {gradients[0], at::Tensor()};
  }
};

// `rows` of the result; below 0 if they vary. Exactly one of x and the result has varying rows.
struct RowsFunction : torch::autograd::Function<RowsFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& sent,
                            const at::Tensor& received, std::int64_t rows, std::int64_t group) {
    context->save_for_backward({sent, received});
    context->saved_data["rows"] = rows < 0 ? x.size(0) : std::int64_t{-1};
    context->saved_data["group"] = group;
    const at::AutoDispatchBelowADInplaceOrView below;
    return CallRows(x.contiguous(), sent, received, rows, group);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor gradient =
        CallRows(gradients[0].contiguous(), saved[1], saved[0], context->saved_data["rows"].toInt(),
                 context->saved_data["group"].toInt());
    return {gradient, at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor()};
  }

 private:
  static at::Tensor CallRows(const at::Tensor& x, const at::Tensor& sent,
                             const at::Tensor& received, std::int64_t rows, std::int64_t group) {
    static const auto op = FindOp("penstock::all_to_all_rows", "")
                               .typed<at::Tensor(const at::Tensor&, const at::Tensor&,
                                                 const at::Tensor&, std::int64_t, std::int64_t)>();
    return op.call(x, sent, received, rows, group);
  }
};

template <Differentiable kOp>
at::Tensor WithNumber(const at::Tensor& x, std::int64_t number, std::int64_t group) {
  return CollectiveFunction::apply(x, kOp, IntList{number}, IntList(), group);
}

template <Differentiable kOp>
at::Tensor WithGradient(const at::Tensor& x, std::int64_t group) {
  return CollectiveFunction::apply(x, kOp, IntList(), IntList(), group);
}

at::Tensor UnevenWithGradient(const at::Tensor& x, at::IntArrayRef sent, at::IntArrayRef received,
                              std::int64_t group) {
  return CollectiveFunction::apply(x, Differentiable::kUnevenAllToAll, sent.vec(), received.vec(),
                                   group);
}

TORCH_LIBRARY_FRAGMENT(penstock, library) {
  DefineCollective(library, "all_gather", "int ranks, ");
  DefineCollective(library, "reduce_scatter", "int ranks, ");
  DefineCollective(library, "all_reduce", "");
  DefineCollective(library, "all_to_all", "");
  DefineCollective(library, "all_to_all_uneven", "int[] sent, int[] received, ");
  DefineCollective(library, "all_to_all_rows", "Tensor sent, Tensor received, int rows, ");
  DefineCollective(library, "broadcast", "int root, ");
  DefineCollective(library, "reduce", "int root, ");
}
TORCH_LIBRARY_IMPL(penstock, CompositeExplicitAutograd, library) {  // of all devices
  AllGatherKernels::Register(library);
  ReduceScatterKernels::Register(library);
  AllReduceKernels::Register(library);
  AllToAllKernels::Register(library);
  UnevenAllToAllKernels::Register(library);
  RowsAllToAllKernels::Register(library);
  BroadcastKernels::Register(library);
  ReduceKernels::Register(library);
}
TORCH_LIBRARY_IMPL(penstock, Meta, library) {
  AllGatherKernels::RegisterShapes(library);
  ReduceScatterKernels::RegisterShapes(library);
  AllReduceKernels::RegisterShapes(library);
  AllToAllKernels::RegisterShapes(library);
  UnevenAllToAllKernels::RegisterShapes(library);
  RowsAllToAllKernels::RegisterShapes(library);
  BroadcastKernels::RegisterShapes(library);
  ReduceKernels::RegisterShapes(library);
}
TORCH_LIBRARY_IMPL(penstock, Autograd, library) {
  library.impl("all_gather", WithNumber<Differentiable::kAllGather>);
  library.impl("reduce_scatter", WithNumber<Differentiable::kReduceScatter>);
  library.impl("all_reduce", WithGradient<Differentiable::kAllReduce>);
  library.impl("all_to_all", WithGradient<Differentiable::kAllToAll>);
  library.impl("all_to_all_uneven", UnevenWithGradient);
  library.impl("broadcast", WithNumber<Differentiable::kBroadcast>);
  library.impl("reduce", WithNumber<Differentiable::kReduce>);
}

constexpr std::string_view kWholeOps[] = {
    "penstock::all_gather",          "penstock::reduce_scatter",
    "penstock::all_reduce",          "penstock::all_to_all",
    "penstock::all_to_all_uneven",   "penstock::all_to_all_rows",
    "penstock::broadcast",           "penstock::reduce",
    "penstock::c10d_all_reduce",     "penstock::c10d_all_gather",
    "penstock::c10d_reduce_scatter", "penstock::c10d_all_to_all",
    "penstock::c10d_broadcast"};

constexpr std::string_view kStartHalf = "_start", kWaitHalf = "_wait";

bool IsWhole(std::string_view name) {
  return std::ranges::find(kWholeOps, name) != std::end(kWholeOps);
}

auto OpOfTensor(const char* name) {
  return FindOp(name, "").typed<at::Tensor(const at::Tensor&, std::int64_t)>();
}
auto OpWithNumber(const char* name) {
  return FindOp(name, "").typed<at::Tensor(const at::Tensor&, std::int64_t, std::int64_t)>();
}

}  // namespace

at::Tensor AllGather(const at::Tensor& x, int ranks, int group) {
  static const auto op = OpWithNumber("penstock::all_gather");
  return op.call(x, ranks, group);
}

at::Tensor ReduceScatter(const at::Tensor& x, int ranks, int group) {
  static const auto op = OpWithNumber("penstock::reduce_scatter");
  return op.call(x, ranks, group);
}

at::Tensor AllReduce(const at::Tensor& x, int group) {
  static const auto op = OpOfTensor("penstock::all_reduce");
  return op.call(x, group);
}

at::Tensor SumForAll(const at::Tensor& x, int group) {
  return SumFunction::apply(x, std::int64_t{group});
}

at::Tensor AllToAll(const at::Tensor& x, int group) {
  static const auto op = OpOfTensor("penstock::all_to_all");
  return op.call(x, group);
}

at::Tensor AllToAll(const at::Tensor& x, at::IntArrayRef sent, at::IntArrayRef received,
                    int group) {
  static const auto op =
      FindOp("penstock::all_to_all_uneven", "")
          .typed<at::Tensor(const at::Tensor&, at::IntArrayRef, at::IntArrayRef, std::int64_t)>();
  return op.call(x, sent, received, group);
}

at::Tensor SendRows(const at::Tensor& x, const at::Tensor& sent, const at::Tensor& received,
                    int group) {
  return RowsFunction::apply(x, sent, received, std::int64_t{-1}, std::int64_t{group});
}

at::Tensor ReturnRows(const at::Tensor& x, const at::Tensor& sent, const at::Tensor& received,
                      std::int64_t rows, int group) {
  return RowsFunction::apply(x, sent, received, rows, std::int64_t{group});
}

at::Tensor Broadcast(const at::Tensor& x, int root, int group) {
  static const auto op = OpWithNumber("penstock::broadcast");
  return op.call(x, root, group);
}

at::Tensor Reduce(const at::Tensor& x, int root, int group) {
  static const auto op = OpWithNumber("penstock::reduce");
  return op.call(x, root, group);
}

TensorType TicketType() { return {at::kLong, {1}, {1}}; }

std::optional<SplitCollective> SplitOf(const Node& node) {
  const std::string& name = node.op.operator_name().name;
  if (!IsWhole(name)) return std::nullopt;
  return SplitCollective{FindOp((name + "_start").c_str(), ""),
                         FindOp((name + "_wait").c_str(), "")};
}

std::optional<c10::OperatorHandle> WholeOf(const Node& node) {
  std::string name = node.op.operator_name().name;
  if (!name.ends_with(kStartHalf) || !IsCollective(node)) return std::nullopt;
  name.resize(name.size() - kStartHalf.size());
  return FindOp(name.c_str(), "");
}

bool IsWait(const Node& node) {
  return node.op.operator_name().name.ends_with(kWaitHalf) && IsCollective(node);
}

std::int64_t GroupOf(const Node& node) {
  return std::get<c10::IValue>(node.arguments.back()).toInt();
}

bool IsCollective(const Node& node) {
  std::string_view name = node.op.operator_name().name;
  for (const std::string_view half : {kStartHalf, kWaitHalf}) {
    if (name.ends_with(half)) name.remove_suffix(half.size());
  }
  return IsWhole(name);
}

bool IsAllGather(const Node& node) {
  return IsOp(node, "penstock::all_gather") || IsOp(node, "penstock::c10d_all_gather");
}

}  // namespace penstock
