#include "model/context_parallel.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <torch/csrc/autograd/custom_function.h>

#include "base/index.h"
#include "graph/ops/collective.h"
#include "graph/ops/documents.h"

namespace penstock {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Returns the blocks of all ranks, one rank after another, in the order of samples, or back.
at::Tensor Reordered(const at::Tensor& tokens, std::int64_t ranks, bool back) {
  const std::int64_t blocks = 2 * ranks, length = tokens.size(0) / blocks;
  std::vector<at::Tensor> pieces(Index(blocks));
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    for (const auto& [of_ranks, of_sample] :
         {std::pair(2 * rank, rank), std::pair(2 * rank + 1, blocks - 1 - rank)}) {
      const std::int64_t from = back ? of_sample : of_ranks, to = back ? of_ranks : of_sample;
      pieces[Index(to)] = tokens.narrow(0, from * length, length);
    }
  }
  return at::cat(pieces, 0);
}

struct ContextGather : torch::autograd::Function<ContextGather> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& own, std::int64_t ranks) {
    context->saved_data["ranks"] = ranks;
    const at::AutoDispatchBelowADInplaceOrView below;
    return Reordered(AllGather(own.contiguous(), static_cast<int>(ranks), kContextGroup), ranks,
                     /*back=*/false);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const std::int64_t ranks = context->saved_data["ranks"].toInt();
    return {ReduceScatter(Reordered(gradients[0], ranks, /*back=*/true).contiguous(),
                          static_cast<int>(ranks), kContextGroup),
            at::Tensor()};
  }
};

// Swaps [B, H, S, E] and [H, S, B, E].
at::Tensor WithHeadsFirst(const at::Tensor& x) { return x.permute({1, 2, 0, 3}); }
at::Tensor WithBatchFirst(const at::Tensor& x) { return x.permute({2, 0, 1, 3}); }

at::Tensor SendHeads(const at::Tensor& own, std::int64_t ranks) {
  const at::Tensor sent = WithHeadsFirst(own).contiguous();
  const at::Tensor of_ranks =  // [ranks, H / ranks, S, B, E]
      AllToAll(sent, kContextGroup).unflatten(0, {ranks, sent.size(0) / ranks});
  const at::Tensor tokens = of_ranks.transpose(1, 2).flatten(0, 1);  // [ranks S, H / ranks, B, E]
  return WithBatchFirst(Reordered(tokens, ranks, /*back=*/false).transpose(0, 1));
}

at::Tensor SendTokens(const at::Tensor& all, std::int64_t ranks) {
  const at::Tensor tokens = Reordered(WithHeadsFirst(all).transpose(0, 1), ranks, /*back=*/true);
  const at::Tensor of_ranks =
      tokens.unflatten(0, {ranks, tokens.size(0) / ranks}).transpose(1, 2).flatten(0, 1);
  return WithBatchFirst(AllToAll(of_ranks.contiguous(), kContextGroup));
}

// The gradient of one exchange is the other.
template <bool kToHeads>
struct HeadExchange : torch::autograd::Function<HeadExchange<kToHeads>> {
  static at::Tensor Exchanged(const at::Tensor& x, std::int64_t ranks, bool to_heads) {
    return to_heads ? SendHeads(x, ranks) : SendTokens(x, ranks);
  }
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, std::int64_t ranks) {
    context->saved_data["ranks"] = ranks;
    const at::AutoDispatchBelowADInplaceOrView below;
    return Exchanged(x, ranks, kToHeads);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    return {Exchanged(gradients[0], context->saved_data["ranks"].toInt(), !kToHeads), at::Tensor()};
  }
};

}  // namespace

std::vector<TokenRun> ContextPlace::Runs(std::int64_t tokens) const {
  if (ranks == 1) return {{0, tokens, 0}};
  const std::int64_t length = tokens / 2;
  return {{0, length, rank * length}, {length, length, (2 * ranks - 1 - rank) * length}};
}

at::Tensor TokensOf(const ContextPlace& place, const at::Tensor& all, std::int64_t dimension,
                    const at::Scalar& padding) {
  if (place.ranks == 1) return all;
  const std::int64_t own = ContextTokens(all.size(dimension), place.ranks);
  const std::int64_t missing = own * place.ranks - all.size(dimension);
  std::vector<std::int64_t> sides(Index(2 * (all.dim() - dimension)));  // last dimension first
  sides.back() = missing;
  const at::Tensor whole = missing > 0 ? at::constant_pad_nd(all, sides, padding) : all;
  std::vector<at::Tensor> pieces;
  for (const TokenRun& run : place.Runs(own)) {
    pieces.push_back(whole.narrow(dimension, run.position, run.length));
  }
  return at::cat(pieces, dimension);
}

at::Tensor GatherSamples(const at::Tensor& own, const ContextPlace& place) {
  return place.ranks == 1 ? own : ContextGather::apply(own, std::int64_t{place.ranks});
}

at::Tensor ExchangeHeads(const at::Tensor& own, const ContextPlace& place) {
  return HeadExchange<true>::apply(own, std::int64_t{place.ranks});
}

at::Tensor ReturnHeads(const at::Tensor& all, const ContextPlace& place) {
  return HeadExchange<false>::apply(all, std::int64_t{place.ranks});
}

at::Tensor RepeatHeads(const at::Tensor& x, std::int64_t heads) {
  if (x.size(1) == heads) return x;
  return x.unsqueeze(2)
      .expand({x.size(0), x.size(1), heads / x.size(1), x.size(2), x.size(3)})
      .reshape({x.size(0), heads, x.size(2), x.size(3)});
}

at::Tensor SumOverContext(const at::Tensor& x, const ContextPlace& place) {
  return place.ranks == 1 ? x : SumForAll(x, kContextGroup);
}

at::Tensor FollowingTokens(const at::Tensor& own, std::int64_t none, const ContextPlace& place) {
  const at::Tensor all = GatherSamples(own.transpose(0, 1), place);
  const at::Tensor following =
      at::constant_pad_nd(all.narrow(0, 1, all.size(0) - 1), {0, 0, 0, 1}, none);
  return TokensOf(place, following, 0).transpose(0, 1);
}

at::Tensor DocumentStartsOf(const at::Tensor& tokens, std::int64_t end, const ContextPlace& place) {
  if (place.ranks == 1) return DocumentStarts(tokens, end);
  const at::Tensor all = GatherSamples(tokens.transpose(0, 1), place).transpose(0, 1);
  return TokensOf(place, DocumentStarts(all, end), 1);
}

}  // namespace penstock
