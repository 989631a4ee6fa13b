#include "model/sequence_context.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>

#include <limits>

#include "base/result.h"

namespace penstock {

SequenceContext::SequenceContext(int cuts, std::span<const at::Tensor> earlier)
    : cuts_(cuts), earlier_(earlier.begin(), earlier.end()) {
  if (cuts == 0) return;
  const std::size_t a_cut = earlier.size() / static_cast<std::size_t>(cuts);
  PENSTOCK_CHECK(a_cut > 0 && a_cut * static_cast<std::size_t>(cuts) == earlier.size(),
                 "{} keys and values of {} cuts", earlier.size(), cuts);
  for (std::size_t i = 0; i < earlier.size(); i += a_cut) start_ += earlier[i].size(1);
}

KeysValues SequenceContext::Extend(const KeysValues& own) {
  return {WithEarlier(own.keys), WithEarlier(own.values)};
}

// Kept with the tokens outside the heads, as projections make them: no copy to make it contiguous.
at::Tensor SequenceContext::WithEarlier(const at::Tensor& own) {
  if (cuts_ < 0) return own;
  const std::size_t index = own_.size();
  own_.push_back(own.transpose(1, 2).contiguous());
  if (cuts_ == 0) return own_.back().transpose(1, 2);
  const std::size_t a_cut = earlier_.size() / static_cast<std::size_t>(cuts_);
  PENSTOCK_CHECK(index < a_cut, "a stage asks for {} keys and values, its earlier cuts left {}",
                 own_.size(), a_cut);
  std::vector<at::Tensor> pieces;
  for (std::size_t i = index; i < earlier_.size(); i += a_cut) pieces.push_back(earlier_[i]);
  pieces.push_back(own_.back());
  return at::cat(pieces, 1).transpose(1, 2);
}

std::optional<at::Tensor> SequenceContext::Mask(const at::Tensor& query) {
  if (start_ == 0) return std::nullopt;
  if (!mask_.defined()) {
    const std::int64_t length = query.size(-2);
    mask_ = at::full({length, start_ + length}, -std::numeric_limits<double>::infinity(),
                     query.options().requires_grad(false))
                .triu(start_ + 1);
  }
  return mask_;
}

}  // namespace penstock
