#include "model/sequence_context.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <limits>

#include "base/index.h"
#include "base/result.h"
#include "graph/ops/documents.h"

namespace penstock {

at::Tensor KeyValueCache::Store(std::size_t index, const at::Tensor& own) {
  const std::int64_t end = length_ + own.size(1);
  PENSTOCK_CHECK(end <= capacity_ && index <= tensors_.size(), "{} tokens in a cache of {}", end,
                 capacity_);
  if (index == tensors_.size()) {
    tensors_.push_back(
        at::empty({own.size(0), capacity_, own.size(2), own.size(3)}, own.options()));
  }
  tensors_[index].narrow(1, length_, own.size(1)).copy_(own);
  return tensors_[index].narrow(1, 0, end);
}

SequenceContext::SequenceContext(int slices, std::span<const at::Tensor> earlier,
                                 std::int64_t start)
    : slices_(slices), start_(start), earlier_(earlier.begin(), earlier.end()) {
  PENSTOCK_CHECK(slices == 0 || earlier.size() % Index(slices) == 0,
                 "{} keys and values do not divide into {} slices", earlier.size(), slices);
}

SequenceContext SequenceContext::OfDocuments(at::Tensor starts) {
  SequenceContext context;
  context.documents_ = std::move(starts);
  return context;
}

at::Tensor SequenceContext::Rows(const at::Tensor& table, std::int64_t tokens) const {
  if (place_.ranks == 1) return table.narrow(0, start_, tokens);
  const std::int64_t missing = start_ + place_.ranks * tokens - table.size(0);
  std::vector<std::int64_t> sides(Index(2 * table.dim()));  // last dimension first
  sides.back() = missing;
  const at::Tensor whole = missing > 0 ? at::constant_pad_nd(table, sides) : table;
  return TokensOf(place_, whole.narrow(0, start_, place_.ranks * tokens), 0);
}

RotaryTable SequenceContext::RotaryOf(const RotaryTable& table, std::int64_t tokens) const {
  if (documents_.defined()) return table.At(PositionsInDocuments(table.cos.size(0)));
  return {Rows(table.cos, tokens), Rows(table.sin, tokens)};
}

at::Tensor SequenceContext::PositionsInDocuments(std::int64_t positions) const {
  const std::int64_t tokens = documents_.size(1);
  const at::Tensor own =
      Rows(at::arange(place_.ranks * tokens, documents_.options()), tokens) - documents_;
  return place_.ranks == 1 ? own : own.clamp_max(positions - 1);
}

at::Tensor SequenceContext::ToAttention(const at::Tensor& query) const {
  return place_.exchanges_heads() ? ExchangeHeads(query, place_) : query;
}

at::Tensor SequenceContext::FromAttention(const at::Tensor& mixed) const {
  return place_.exchanges_heads() ? ReturnHeads(mixed, place_) : mixed;
}

std::vector<TokenRun> SequenceContext::Runs(std::int64_t tokens) const {
  return place_.exchanges_heads() ? ContextPlace().Runs(tokens) : place_.Runs(tokens);
}

// Ranks have some of the heads each, or share one if there are fewer.
KeysValues SequenceContext::Extend(const KeysValues& own) {
  const bool alone = place_.ranks == 1 || place_.is_ring();
  if (alone) return {WithEarlier(own.keys), WithEarlier(own.values)};
  const std::int64_t size = own.keys.size(-1);
  at::Tensor all;  // [B, G, S', E + E]
  if (place_.exchanges_heads()) {
    const at::Tensor both = at::cat({own.keys, own.values}, -1);
    const std::int64_t heads = std::max<std::int64_t>(both.size(1), place_.ranks);
    all = ExchangeHeads(RepeatHeads(both, heads), place_);
  } else {
    const at::Tensor both =
        at::cat({own.keys.permute({2, 0, 1, 3}), own.values.permute({2, 0, 1, 3})}, -1);
    all = GatherSamples(both, place_).permute({1, 2, 0, 3});
  }
  return {WithEarlier(all.narrow(-1, 0, size)),
          WithEarlier(all.narrow(-1, size, own.values.size(-1)))};
}

// Stores tokens outside of heads, as projections produce them, so that contiguous() does not copy.
at::Tensor SequenceContext::WithEarlier(const at::Tensor& own) {
  if (cache_ != nullptr) return cache_->Store(cached_++, own.transpose(1, 2)).transpose(1, 2);
  if (slices_ < 0) return own;
  const std::size_t index = own_.size();
  own_.push_back(own.transpose(1, 2).contiguous());
  if (slices_ == 0) return own_.back().transpose(1, 2);
  const std::size_t per_slice = earlier_.size() / Index(slices_);
  PENSTOCK_CHECK(index < per_slice,
                 "a stage stores {} keys and values, but its earlier slices stored {}", own_.size(),
                 per_slice);
  std::vector<at::Tensor> pieces;
  for (std::size_t i = index; i < earlier_.size(); i += per_slice) pieces.push_back(earlier_[i]);
  pieces.push_back(own_.back());
  return at::cat(pieces, 1).transpose(1, 2);
}

std::optional<at::Tensor> SequenceContext::Mask(const at::Tensor& query, const TokenRun& run) {
  if (start_ + run.position == 0 && !documents_.defined()) return std::nullopt;
  at::Tensor& mask = masks_[run.first];
  if (!mask.defined()) mask = MakeMask(query, run);
  return mask;
}

std::array<std::optional<at::Tensor>, 2> SequenceContext::MasksOfDocuments(
    const at::Tensor& query) {
  if (!documents_.defined()) return {};
  const std::vector<TokenRun> runs = place_.Runs(query.size(-2));
  return {Mask(query, runs[0]), Mask(query, runs[1])};
}

at::Tensor SequenceContext::MakeMask(const at::Tensor& query, const TokenRun& run) const {
  if (documents_.defined()) {
    const at::Tensor starts =
        place_.exchanges_heads() ? GatherSamples(documents_.transpose(0, 1), place_).transpose(0, 1)
                                 : documents_.narrow(1, run.first, run.length);
    return DocumentMask(starts, run.position, query.scalar_type());
  }
  const std::int64_t start = start_ + run.position;
  return at::full({run.length, start + run.length}, -std::numeric_limits<double>::infinity(),
                  query.options().requires_grad(false))
      .triu(start + 1);
}

}  // namespace penstock
