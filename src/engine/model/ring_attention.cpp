#include "model/ring_attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/log.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include <array>
#include <limits>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "base/index.h"
#include "graph/ops/collective.h"

namespace penstock {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// A block of a rank's two, [B, H, L, E], of queries and of what follows from them.
at::Tensor QueryBlock(const at::Tensor& x, std::size_t index) {
  const std::int64_t length = x.size(2) / 2;
  return x.narrow(2, static_cast<std::int64_t>(index) * length, length);
}

// Keys and values of a rank: rows [S, B, G, 2 E].
at::Tensor Packed(const at::Tensor& keys, const at::Tensor& values) {
  return at::cat({keys.permute({2, 0, 1, 3}), values.permute({2, 0, 1, 3})}, -1).contiguous();
}
struct KeysAndValues {
  at::Tensor keys, values;  // [B, H, L, E]
};
KeysAndValues BlockOf(const at::Tensor& packed, std::size_t index, std::int64_t heads) {
  const std::int64_t length = packed.size(0) / 2, size = packed.size(3) / 2;
  const at::Tensor block =
      packed.narrow(0, static_cast<std::int64_t>(index) * length, length).permute({1, 2, 0, 3});
  return {RepeatHeads(block.narrow(-1, 0, size), heads),
          RepeatHeads(block.narrow(-1, size, size), heads)};
}
// Adds the gradients of the heads that share one of `groups`.
at::Tensor OfGroups(const at::Tensor& gradient, std::int64_t groups) {
  if (gradient.size(1) == groups) return gradient;
  return gradient.unflatten(1, {groups, gradient.size(1) / groups}).sum(2);
}

// A block of queries that attends to a block of keys, to all of them or causally.
struct BlockPair {
  std::size_t query, key;
  std::int64_t key_block;  // its index in the sample
  bool causal;
};
std::vector<BlockPair> PairsOf(const ContextPlace& place, int source) {
  std::vector<BlockPair> pairs;
  const int last = 2 * place.ranks - 1;
  const std::array queries = {place.rank, last - place.rank}, keys = {source, last - source};
  for (std::size_t query = 0; query < 2; ++query) {
    for (std::size_t key = 0; key < 2; ++key) {
      if (keys[key] > queries[query]) continue;
      pairs.push_back({query, key, keys[key], keys[key] == queries[query]});
    }
  }
  return pairs;
}

// What attention of a pair hides: the keys after each query, or what the mask of its queries says.
struct Hidden {
  bool causal;
  std::optional<at::Tensor> mask;
};
Hidden HiddenOf(const BlockPair& pair, const std::optional<at::Tensor>& mask) {
  if (!mask) return {pair.causal, {}};
  const std::int64_t length = mask->size(2);
  return {false, mask->narrow(3, pair.key_block * length, length)};
}

// Returns the logarithms of the sums of exponentials [B, H, L], minus infinity for queries whose
// masks hide all keys, whatever the kernel computes for these.
at::Tensor SumsOf(const at::Tensor& sums, const std::optional<at::Tensor>& mask) {
  if (!mask) return sums;
  return sums.masked_fill(at::amax(*mask, -1).lt(0), -std::numeric_limits<double>::infinity());
}

// Sends rows to the next rank, and returns those of the previous one.
at::Tensor Passed(const at::Tensor& rows, const ContextPlace& place) {
  std::vector<std::int64_t> sent(Index(place.ranks)), received(Index(place.ranks));
  sent[Index((place.rank + 1) % place.ranks)] = rows.size(0);
  received[Index((place.rank + place.ranks - 1) % place.ranks)] = rows.size(0);
  return AllToAll(rows.contiguous(), sent, received, kContextGroup);
}

// The result so far of a block of queries, and the logarithm of the sum of its exponentials
// [B, H, L], in fp32: minus infinity for a query whose mask hides all keys so far. A query attends
// to itself in the first step, so this is finite from then on.
struct RunningResult {
  at::Tensor result, sums;

  void Merge(const at::Tensor& more, const at::Tensor& more_sums) {
    if (!result.defined()) {
      result = more.to(at::kFloat);
      sums = more_sums;
      return;
    }
    const at::Tensor most = at::maximum(sums, more_sums);
    const at::Tensor own = at::exp(sums - most), other = at::exp(more_sums - most);
    const at::Tensor all = own + other;
    result = result * (own / all).unsqueeze(-1) + more * (other / all).unsqueeze(-1);
    sums = most + at::log(all);
  }
};

at::Tensor Joined(const std::array<at::Tensor, 2>& blocks, c10::ScalarType dtype) {
  return at::cat({blocks[0].to(dtype).transpose(1, 2), blocks[1].to(dtype).transpose(1, 2)}, 1)
      .transpose(1, 2);  // with the heads inside, as the queries have them
}

at::Tensor Sum(const at::Tensor& sum, const at::Tensor& more) {
  return sum.defined() ? sum + more : more;
}

struct RingFunction : torch::autograd::Function<RingFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& query,
                            const at::Tensor& packed, const std::optional<at::Tensor>& first_mask,
                            const std::optional<at::Tensor>& second_mask, std::int64_t ranks,
                            std::int64_t rank, double scale) {
    context->saved_data["ranks"] = ranks;
    context->saved_data["rank"] = rank;
    context->saved_data["scale"] = scale;
    const at::AutoDispatchBelowADInplaceOrView below;
    const ContextPlace place = {static_cast<int>(ranks), static_cast<int>(rank)};
    const DocumentMasks masks = {first_mask, second_mask};
    std::array<RunningResult, 2> results;
    at::Tensor arrived = packed;
    for (int step = 0; step < place.ranks; ++step) {
      if (step > 0) arrived = Passed(arrived, place);
      const int source = (place.rank + place.ranks - step) % place.ranks;
      for (const BlockPair& pair : PairsOf(place, source)) {
        const KeysAndValues of = BlockOf(arrived, pair.key, query.size(1));
        const Hidden hidden = HiddenOf(pair, masks[pair.query]);
        const auto [result, sums] = at::_scaled_dot_product_flash_attention_for_cpu(
            QueryBlock(query, pair.query), of.keys, of.values, 0.0, hidden.causal, hidden.mask,
            scale);
        results[pair.query].Merge(result, SumsOf(sums, hidden.mask));
      }
    }
    const at::Tensor result = Joined({results[0].result, results[1].result}, query.scalar_type());
    variable_list saved = {query, packed, result, results[0].sums, results[1].sums};
    if (first_mask) saved.insert(saved.end(), {*first_mask, *second_mask});
    context->save_for_backward(std::move(saved));
    return result;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &query = saved[0], &result = saved[2];
    const ContextPlace place = {static_cast<int>(context->saved_data["ranks"].toInt()),
                                static_cast<int>(context->saved_data["rank"].toInt())};
    const double scale = context->saved_data["scale"].toDouble();
    DocumentMasks masks;
    if (saved.size() > 5) masks = {saved[5], saved[6]};
    std::array<at::Tensor, 2> of_queries;
    at::Tensor arrived = saved[1], of_arrived;
    for (int step = 0; step < place.ranks; ++step) {
      if (step > 0) arrived = Passed(arrived, place);
      if (step > 0) of_arrived = Passed(of_arrived, place);
      const int source = (place.rank + place.ranks - step) % place.ranks;
      std::array<KeysAndValues, 2> of_blocks;
      for (const BlockPair& pair : PairsOf(place, source)) {
        const KeysAndValues of = BlockOf(arrived, pair.key, query.size(1));
        const Hidden hidden = HiddenOf(pair, masks[pair.query]);
        const auto [of_query, of_keys, of_values] =
            at::_scaled_dot_product_flash_attention_for_cpu_backward(
                QueryBlock(gradients[0], pair.query), QueryBlock(query, pair.query), of.keys,
                of.values, QueryBlock(result, pair.query), saved[3 + pair.query], 0.0,
                hidden.causal, hidden.mask, scale);
        of_queries[pair.query] = Sum(of_queries[pair.query], of_query);
        KeysAndValues& of_block = of_blocks[pair.key];
        of_block.keys = Sum(of_block.keys, OfGroups(of_keys, arrived.size(2)));
        of_block.values = Sum(of_block.values, OfGroups(of_values, arrived.size(2)));
      }
      if (!of_blocks[1].keys.defined()) {
        of_blocks[1] = {at::zeros_like(of_blocks[0].keys), at::zeros_like(of_blocks[0].values)};
      }
      of_arrived = Sum(of_arrived, at::cat({Packed(of_blocks[0].keys, of_blocks[0].values),
                                            Packed(of_blocks[1].keys, of_blocks[1].values)},
                                           0));
    }
    return {Joined(of_queries, query.scalar_type()),
            Passed(of_arrived, place),
            at::Tensor(),
            at::Tensor(),
            at::Tensor(),
            at::Tensor(),
            at::Tensor()};
  }
};

}  // namespace

at::Tensor RingAttention(const at::Tensor& query, const at::Tensor& keys, const at::Tensor& values,
                         const DocumentMasks& masks, const ContextPlace& place, double scale) {
  return RingFunction::apply(query, Packed(keys, values), masks[0], masks[1],
                             std::int64_t{place.ranks}, std::int64_t{place.rank}, scale);
}

}  // namespace penstock
