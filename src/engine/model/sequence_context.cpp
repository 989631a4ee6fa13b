#include "model/sequence_context.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

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

at::Tensor SequenceContext::PositionsInDocuments() const {
  return at::arange(documents_.size(1), documents_.options()) - documents_;
}

KeysValues SequenceContext::Extend(const KeysValues& own) {
  return {WithEarlier(own.keys), WithEarlier(own.values)};
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

std::optional<at::Tensor> SequenceContext::Mask(const at::Tensor& query) {
  if (start_ == 0 && !documents_.defined()) return std::nullopt;
  if (!mask_.defined()) mask_ = MakeMask(query);
  return mask_;
}

at::Tensor SequenceContext::MakeMask(const at::Tensor& query) const {
  if (documents_.defined()) return DocumentMask(documents_, query.scalar_type());
  const std::int64_t length = query.size(-2);
  return at::full({length, start_ + length}, -std::numeric_limits<double>::infinity(),
                  query.options().requires_grad(false))
      .triu(start_ + 1);
}

}  // namespace penstock
