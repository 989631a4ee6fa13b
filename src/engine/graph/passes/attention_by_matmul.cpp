// Computes attention over short sequences by plain matmuls, which are faster there than the fused
// kernel.
//
//   before:  o, sums = flash(q, k, v);   dq, dk, dv = flash_backward(do, q, k, v, o, sums)
//   after:   p = softmax(mask + scale q k'),  o = p v
//            dv = p' do,  ds = softmax_backward(do v', p),  dq = scale ds k,  dk = scale ds' q
//
// Causal queries in fp32 are processed in blocks, each with the keys up to its last query. This
// skips at least half of the scores above the diagonal. Query heads that share a key head (grouped
// queries: Ainslie et al., GQA, EMNLP 2023) are rows of one matmul with it.
//
// The fused kernel recomputes the scores in its backward and converts each block of 16-bit numbers.
// Here the probabilities [batch * heads, length, length] are saved instead. Measured on one core
// with AVX-512, forward and backward together: in bf16, 2 to 4 times as fast up to length 512; in
// fp32, 1.25 times at length 256 and 1.5 times at 512. Beyond that, the probabilities no longer fit
// in the cache, and below 32 the calls take too long. Results are rounded differently (by about
// 1e-7 in fp32), so it runs only if `exact` is off. Order: on the joint graph, before the
// partition, which determines the saved values.
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "graph/ir/graph_tools.h"
#include "graph/passes/passes.h"

namespace penstock {
namespace {

using c10::IValue;

constexpr std::int64_t kMinLength = 32;
constexpr std::int64_t kMaxLength = 512;
// Queries per block. Smaller blocks skip more scores, but have slower matmuls. In bf16, blocks are
// not faster.
constexpr std::int64_t kBlock = 128;

// The shape [batch, heads, length, dim] of keys, and the attention's options. Queries have `groups`
// times as many heads.
struct Shape {
  std::int64_t batch, heads, groups, length, dim;
  c10::ScalarType dtype;
  bool causal;
  double scale;

  Shape OfQueries() const {
    Shape shape = *this;
    shape.heads *= std::exchange(shape.groups, 1);
    return shape;
  }
  std::int64_t rows() const { return batch * heads; }
  bool blocked() const {
    return causal && dtype == c10::kFloat && length > kBlock && length % kBlock == 0;
  }
  std::int64_t block() const { return blocked() ? kBlock : length; }
  std::int64_t blocks() const { return length / block(); }
  // Returns the number of keys up to the last query of the block.
  std::int64_t keys(std::int64_t index) const { return (index + 1) * block(); }
};

class Rewriter {
 public:
  explicit Rewriter(Graph& graph) : graph_(graph) {}

  void Run() {
    const std::vector<Node> nodes = std::move(graph_.nodes);
    graph_.nodes.clear();
    for (const Node& node : nodes) {
      const bool is_backward =
          IsOp(node, "aten::_scaled_dot_product_flash_attention_for_cpu_backward");
      ForEachInput(node, [&](ValueId id) {
        if (!is_backward) read_.insert(graph_.Root(id));
      });
    }
    for (const Node& node : nodes) {
      const std::string& name = node.op.operator_name().name;
      const bool replaced =
          name == "aten::_scaled_dot_product_flash_attention_for_cpu"            ? Forward(node)
          : name == "aten::_scaled_dot_product_flash_attention_for_cpu_backward" ? Backward(node)
                                                                                 : false;
      if (!replaced) graph_.nodes.push_back(node);
    }
    RedirectReaders();
  }

 private:
  ValueId In(const Node& node, std::size_t argument) const {
    return std::get<ValueId>(node.arguments[argument]);
  }

  // Returns nullopt if the rewrite does not apply or is not faster.
  std::optional<Shape> ShapeOf(const Node& node, std::size_t query, std::size_t dropout) const {
    const TensorType& q = graph_.value(In(node, query)).type;
    const TensorType& k = graph_.value(In(node, query + 1)).type;
    if (q.sizes.size() != 4 || HasMask(node.arguments[dropout + 2])) return std::nullopt;
    const std::int64_t heads = k.sizes[1];
    if (q.sizes[1] % heads != 0) return std::nullopt;
    std::vector<std::int64_t> like_keys = q.sizes;
    like_keys[1] = heads;
    if (like_keys != k.sizes) return std::nullopt;
    const IValue& scale = std::get<IValue>(node.arguments[dropout + 3]);
    Shape shape{q.sizes[0],
                heads,
                q.sizes[1] / heads,
                q.sizes[2],
                q.sizes[3],
                q.dtype,
                std::get<IValue>(node.arguments[dropout + 1]).toBool(),
                scale.isNone() ? 1 / std::sqrt(static_cast<double>(q.sizes[3])) : scale.toDouble()};
    if (shape.dtype != c10::kBFloat16 && shape.dtype != c10::kFloat) return std::nullopt;
    if (shape.length < kMinLength || shape.length > kMaxLength) return std::nullopt;
    // A single fp32 block beyond this is slower than the fused kernel.
    if (shape.dtype == c10::kFloat && !shape.blocked() && shape.length > 2 * kBlock) {
      return std::nullopt;
    }
    return shape;
  }
  static bool HasMask(const Argument& argument) {
    const auto* constant = std::get_if<IValue>(&argument);
    if (constant == nullptr) return true;
    return constant->isTensor() && constant->toTensor().defined();
  }

  ValueId Add(std::vector<std::int64_t> sizes, c10::ScalarType dtype) {
    return graph_.AddValue({ContiguousType(dtype, std::move(sizes)), kNoValue, 0});
  }
  // Returns a view of the root of `id`.
  ValueId View(ValueId id, TensorType type) {
    const std::int64_t offset =
        graph_.value(id).view_of == kNoValue ? 0 : graph_.value(id).view_offset;
    return graph_.AddValue({std::move(type), graph_.Root(id), offset});
  }
  ValueId Emit(const c10::OperatorHandle& op, std::vector<Argument> arguments,
               std::vector<std::int64_t> sizes, const Node& like) {
    const ValueId result = Add(std::move(sizes), dtype_);
    graph_.nodes.push_back({op, std::move(arguments), {result}, like.phase, like.module});
    return result;
  }
  ValueId Contiguous(ValueId view, const Node& like) {
    std::vector<Argument> arguments;
    arguments.emplace_back(view);
    arguments.emplace_back(IValue(static_cast<std::int64_t>(c10::MemoryFormat::Contiguous)));
    return Emit(FindOp("aten::clone", ""), std::move(arguments), graph_.value(view).type.sizes,
                like);
  }
  ValueId Product(ValueId a, ValueId b, std::vector<std::int64_t> sizes, const Node& like) {
    std::vector<Argument> arguments;
    arguments.emplace_back(a);
    arguments.emplace_back(b);
    return Emit(FindOp("aten::bmm", ""), std::move(arguments), std::move(sizes), like);
  }

  // Returns [batch, heads, length, dim] as [batch * heads, length, dim]. Copies it if the strides
  // require that.
  ValueId Rows(ValueId id, const Shape& shape, const Node& like) {
    TensorType type = graph_.value(id).type;
    if (shape.batch > 1 && type.strides[0] != shape.heads * type.strides[1]) {
      id = Contiguous(id, like);
      type = graph_.value(id).type;
    }
    return View(id, {type.dtype,
                     {shape.rows(), shape.length, shape.dim},
                     {type.strides[1], type.strides[2], type.strides[3]}});
  }
  // Returns the elements begin to end of dimension 1 or 2 of [batch * heads, .., ..].
  ValueId Slice(ValueId id, std::size_t dim, std::int64_t begin, std::int64_t end) {
    TensorType type = graph_.value(id).type;
    if (begin == 0 && end == type.sizes[dim]) return id;
    const std::int64_t skipped = begin * type.strides[dim];
    type.sizes[dim] = end - begin;
    const ValueId view = View(id, std::move(type));
    graph_.values[view].view_offset += skipped;
    return view;
  }
  // Returns the blocks of queries [batch * heads, groups * block, dim]. Copies where the strides
  // require it.
  std::vector<ValueId> Queries(ValueId id, const Shape& shape, const Node& like) {
    const ValueId rows = Rows(id, shape.OfQueries(), like);
    std::vector<ValueId> blocks;
    for (std::int64_t block = 0; block < shape.blocks(); ++block) {
      blocks.push_back(Slice(rows, 1, block * shape.block(), shape.keys(block)));
      if (shape.groups == 1) continue;
      if (!IsContiguous(graph_.value(blocks.back()).type)) {
        blocks.back() = Contiguous(blocks.back(), like);
      }
      const std::int64_t row = shape.groups * shape.block() * shape.dim;
      blocks.back() = View(blocks.back(), {shape.dtype,
                                           {shape.rows(), shape.groups * shape.block(), shape.dim},
                                           {row, shape.dim, 1}});
    }
    return blocks;
  }
  ValueId Keys(ValueId id, const Shape& shape, std::int64_t block) {
    return Slice(id, 1, 0, shape.causal ? shape.keys(block) : shape.length);
  }
  // Returns sum + scale * a * b, where `sum` may be kNoValue.
  ValueId Sum(ValueId sum, ValueId a, ValueId b, const Shape& shape, double scale,
              const Node& like) {
    const std::vector<std::int64_t> sizes = {shape.rows(), graph_.value(a).type.sizes[1],
                                             shape.dim};
    if (sum == kNoValue && scale == 1) return Product(a, b, sizes, like);
    const IValue beta(std::int64_t{sum == kNoValue ? 0 : 1});
    return Emit(FindOp("aten::baddbmm", ""),
                {sum == kNoValue ? Nothing(shape, sizes) : sum, a, b, beta, IValue(scale)}, sizes,
                like);
  }
  ValueId Transposed(ValueId id) {
    TensorType type = graph_.value(id).type;
    std::swap(type.sizes[1], type.sizes[2]);
    std::swap(type.strides[1], type.strides[2]);
    return View(id, std::move(type));
  }

  // Replaces `old` by `blocks`, each contiguous with the elements of [batch * heads, block, dim],
  // in the layout of `old`.
  void Replace(ValueId old, std::vector<ValueId> blocks, const Shape& shape, const Node& like) {
    if (old == kNoValue) return;
    std::vector<std::int64_t> sizes = {shape.rows(), shape.length, shape.dim};
    const bool inside = !IsContiguous(graph_.value(old).type);
    if (blocks.size() == 1 && !inside) {
      replaced_[old] = blocks[0];
      return;
    }
    const std::int64_t row = shape.block() * shape.dim;
    TensorType of_block = {
        shape.dtype, {shape.rows(), shape.block(), shape.dim}, {row, shape.dim, 1}};
    if (inside) {
      sizes = {shape.batch, shape.length, shape.heads, shape.dim};
      of_block = {shape.dtype,
                  {shape.batch, shape.block(), shape.heads, shape.dim},
                  {shape.heads * row, shape.dim, row, 1}};
    }
    for (ValueId& block : blocks) block = View(block, of_block);
    if (blocks.size() > 1) {
      replaced_[old] =
          Emit(FindOp("aten::cat", ""), {std::move(blocks), IValue(std::int64_t{1})}, sizes, like);
    } else {
      replaced_[old] = Contiguous(blocks[0], like);
    }
  }
  // Returns whether Replace supports the layout: dense, with the heads outside or inside the
  // length.
  bool HasKnownLayout(ValueId id, const Shape& shape) const {
    if (id == kNoValue) return true;
    const TensorType& type = graph_.value(id).type;
    const std::int64_t inside = shape.heads * shape.dim;
    return IsContiguous(type) ||
           (type.strides[3] == 1 && type.strides[1] == shape.dim && type.strides[2] == inside &&
            (shape.batch == 1 || type.strides[0] == shape.length * inside));
  }

  // Returns the addend of a block's scores: if causal, minus infinity above the diagonal, else
  // zeros.
  ValueId Mask(const Shape& shape, std::int64_t block) {
    const std::int64_t length = shape.length;
    const auto key = std::make_tuple(length, shape.groups, shape.dtype, shape.causal);
    auto found = masks_.find(key);
    if (found == masks_.end()) {
      const double above = shape.causal ? -std::numeric_limits<double>::infinity() : 0;
      const at::Tensor mask = at::full({length, length}, above, shape.dtype)
                                  .triu(1)
                                  .view({shape.blocks(), 1, shape.block(), length})
                                  .expand({-1, shape.groups, -1, -1});
      found = masks_.emplace(key, Bind(mask.reshape({-1, length}), "mask")).first;
    }
    const ValueId whole =
        View(found->second,
             {shape.dtype, {shape.rows(), shape.groups * length, length}, {0, length, 1}});
    const std::int64_t rows = shape.groups * shape.block();
    const ValueId queries = Slice(whole, 1, block * rows, (block + 1) * rows);
    return shape.causal ? Slice(queries, 2, 0, shape.keys(block)) : queries;
  }
  // Returns the addend of a baddbmm whose beta is 0.
  ValueId Nothing(const Shape& shape, const std::vector<std::int64_t>& sizes) {
    if (nothing_ == kNoValue) nothing_ = Bind(at::zeros({}, shape.dtype), "nothing");
    return View(nothing_, {shape.dtype, sizes, {0, 0, 0}});
  }
  ValueId Bind(const at::Tensor& tensor, const char* name) {
    const ValueId id = graph_.AddValue({TypeOf(tensor), kNoValue, 0});
    graph_.bound.push_back({id, BoundKind::kConstant, -1, name, tensor});
    return id;
  }

  bool Forward(const Node& node) {
    const std::optional<Shape> shape = ShapeOf(node, 0, 3);
    if (!shape || !HasKnownLayout(node.outputs[0], shape->OfQueries())) return false;
    // Parts of an attention that are merged by their log-sum-exp (RingAttention).
    if (read_.contains(graph_.Root(node.outputs[1]))) return false;
    dtype_ = shape->dtype;
    const std::vector<ValueId> q = Queries(In(node, 0), *shape, node);
    const ValueId k = Rows(In(node, 1), *shape, node);
    const ValueId v = Rows(In(node, 2), *shape, node);
    std::vector<ValueId> outputs;
    std::vector<ValueId>& saved = probabilities_[node.outputs[1]];
    for (std::int64_t block = 0; block < shape->blocks(); ++block) {
      const ValueId mask = Mask(*shape, block);
      const std::vector<std::int64_t> sizes = graph_.value(mask).type.sizes;
      const ValueId scores = Emit(FindOp("aten::baddbmm", ""),
                                  {mask, q[block], Transposed(Keys(k, *shape, block)),
                                   IValue(std::int64_t{1}), IValue(shape->scale)},
                                  sizes, node);
      saved.push_back(Emit(FindOp("aten::_softmax", ""),
                           {scores, IValue(std::int64_t{-1}), IValue(false)}, sizes, node));
      outputs.push_back(Sum(kNoValue, saved.back(), Keys(v, *shape, block), *shape, 1, node));
    }
    Replace(node.outputs[0], std::move(outputs), shape->OfQueries(), node);
    return true;
  }

  bool Backward(const Node& node) {
    const auto found = probabilities_.find(In(node, 5));
    if (found == probabilities_.end()) return false;
    const Shape shape = *ShapeOf(node, 1, 6);
    dtype_ = shape.dtype;
    for (const ValueId output : node.outputs) {
      const bool of_queries = output == node.outputs[0];
      PENSTOCK_CHECK(HasKnownLayout(output, of_queries ? shape.OfQueries() : shape),
                     "%{}: an attention gradient's layout", output);
    }
    const std::vector<ValueId>& p = found->second;
    const std::vector<ValueId> g = Queries(In(node, 0), shape, node);
    const std::vector<ValueId> q = Queries(In(node, 1), shape, node);
    const ValueId k = Rows(In(node, 2), shape, node);
    const ValueId v = Rows(In(node, 3), shape, node);
    std::vector<ValueId> ds, dq, dk, dv;
    for (std::int64_t block = 0; block < shape.blocks(); ++block) {
      const ValueId of_block = p[block];
      const std::vector<std::int64_t> sizes = graph_.value(of_block).type.sizes;
      const ValueId dp = Product(g[block], Transposed(Keys(v, shape, block)), sizes, node);
      ds.push_back(Emit(FindOp("aten::_softmax_backward_data", ""),
                        {dp, of_block, IValue(std::int64_t{-1}), IValue(shape.dtype)}, sizes,
                        node));
      dq.push_back(Sum(kNoValue, ds.back(), Keys(k, shape, block), shape, shape.scale, node));
    }
    for (std::int64_t block = 0; block < shape.blocks(); ++block) {
      dv.push_back(OfKeys(p, g, shape, block, 1, node));
      dk.push_back(OfKeys(ds, q, shape, block, shape.scale, node));
    }
    Replace(node.outputs[2], std::move(dv), shape, node);
    Replace(node.outputs[0], std::move(dq), shape.OfQueries(), node);
    Replace(node.outputs[1], std::move(dk), shape, node);
    return true;
  }

  // Returns scale * weights' * x for a block of keys, summed over the blocks of queries that attend
  // to it.
  ValueId OfKeys(const std::vector<ValueId>& weights, const std::vector<ValueId>& x,
                 const Shape& shape, std::int64_t block, double scale, const Node& like) {
    ValueId sum = kNoValue;
    for (std::int64_t by = block; by < shape.blocks(); ++by) {
      const ValueId seen = Slice(weights[by], 2, block * shape.block(), shape.keys(block));
      sum = Sum(sum, Transposed(seen), x[by], shape, scale, like);
    }
    return sum;
  }

  // Redirects readers of replaced values and of their views to the new values, which have the same
  // layout.
  void RedirectReaders() {
    std::map<ValueId, ValueId> now;
    for (const auto& [old, replacement] : replaced_) {
      const TensorType type = graph_.value(old).type;
      now[old] = View(replacement, type);
    }
    for (TensorValue& value : graph_.values) {
      const auto found = replaced_.find(value.view_of);
      if (found != replaced_.end()) value.view_of = found->second;
    }
    const auto redirect = [&](ValueId& id) {
      const auto found = now.find(id);
      if (found != now.end()) id = found->second;
    };
    for (Node& node : graph_.nodes) ForEachInput(node, redirect);
    for (ValueId& output : graph_.outputs) redirect(output);
  }

  Graph& graph_;
  c10::ScalarType dtype_ = c10::kFloat;  // of the rewritten attention
  std::set<ValueId> read_;               // roots of what nodes other than backwards read
  std::map<ValueId, ValueId> replaced_;  // by result of a fused kernel: its replacement
  // By log-sum-exp: the probabilities that backward reads instead, by block.
  std::map<ValueId, std::vector<ValueId>> probabilities_;
  std::map<std::tuple<std::int64_t, std::int64_t, c10::ScalarType, bool>, ValueId> masks_;
  ValueId nothing_ = kNoValue;
};

}  // namespace

Status AttentionByMatmul(StageGraphs& graphs, const CompileOptions& options) {
  if (!options.exact) Rewriter(graphs.joint.graph).Run();
  return {};
}

}  // namespace penstock
