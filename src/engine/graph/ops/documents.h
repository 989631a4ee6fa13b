// Documents that follow each other in a sequence. A token `end` is the last one of its document.
//
//   penstock::document_starts(Tensor tokens, int end) -> Tensor
//   penstock::document_mask(Tensor starts, int first, ScalarType dtype) -> Tensor
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace penstock {

// Returns the index of the first token of each token's document, [B, S] int64. The first token of a
// sequence starts a document. Requires: tokens are [B, S] int64.
at::Tensor DocumentStarts(const at::Tensor& tokens, std::int64_t end);

// Returns the addend of the scores of attention of tokens `first` to `first + L - 1` of a sequence
// to all tokens up to the last of them, [B, 1, L, first + L]: 0 for the token itself and the
// earlier ones of its document, else minus infinity. `starts` are [B, L] int64, at most the token's
// index.
at::Tensor DocumentMask(const at::Tensor& starts, std::int64_t first, at::ScalarType dtype);

}  // namespace penstock
