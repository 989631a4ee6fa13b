// SequenceContext: what a stage's attention layers attend to: in addition to the input, the keys
// and values of earlier slices of the same sequences (Sun et al., Seq1F1B, 2024); or only a part of
// the input, the documents of packed sequences.
//
// Shapes are as in layers.h. P is the number of tokens before the input.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "model/context_parallel.h"
#include "model/rope.h"

namespace penstock {

struct KeysValues {
  at::Tensor keys;
  at::Tensor values;
};

// The keys and values of all tokens that a stage has seen of some sequences, for generation: a
// forward of the next tokens computes only theirs. Keeps its memory when it is cleared.
class KeyValueCache {
 public:
  // `capacity` is the largest number of tokens.
  explicit KeyValueCache(std::int64_t capacity) : capacity_(capacity) {}

  std::int64_t length() const { return length_; }  // tokens
  // Stores tensor `index` of the stage for the next tokens, [B, S, G, E], and returns it for all
  // tokens, [B, length + S, G, E], valid until the cache is cleared.
  at::Tensor Store(std::size_t index, const at::Tensor& own);
  // Ends a forward of `tokens` tokens, whose tensors are stored.
  void Advance(std::int64_t tokens) { length_ += tokens; }
  void Clear() { length_ = 0; }

 private:
  std::int64_t capacity_;
  std::int64_t length_ = 0;
  std::vector<at::Tensor> tensors_;  // [B, capacity, G, E]
};

// A context is used for one forward of a stage.
class SequenceContext {
 public:
  // For whole sequences: stores no keys and values.
  SequenceContext() = default;
  // For a slice that begins at token `start`. `earlier` is the concatenation of Own() of the
  // `slices` earlier slices, which may be none; empty for stages without attention.
  SequenceContext(int slices, std::span<const at::Tensor> earlier, std::int64_t start);
  // For the tokens that follow those in the cache, which must outlive the context. Extend stores
  // the new keys and values there; Own() stays empty. Then call Advance.
  explicit SequenceContext(KeyValueCache& cache) : start_(cache.length()), cache_(&cache) {}
  // For whole sequences of several documents. `starts` [B, S] int64 is the index of the first token
  // of each token's document. Tokens attend only to their own document.
  static SequenceContext OfDocuments(at::Tensor starts);

  // Declares that the input has only the tokens of one of several ranks (ContextPlace).
  void Divide(const ContextPlace& place) { place_ = place; }

  const ContextPlace& place() const { return place_; }
  std::int64_t start() const { return start_; }  // P
  bool is_whole() const { return slices_ < 0; }

  // Takes the input's keys and values [B, G, S, E], and returns those of all tokens so far, of all
  // ranks unless they form a ring, [B, G, P + S', E]. Each attention layer calls this once, in the
  // order of the layers.
  KeysValues Extend(const KeysValues& own);

  // Returns the queries [B, H, S, E] of the tokens that attention runs on: the input's, or of some
  // heads all tokens'. FromAttention returns its results to the input's tokens.
  at::Tensor ToAttention(const at::Tensor& query) const;
  at::Tensor FromAttention(const at::Tensor& mixed) const;
  // Returns the runs of `tokens` such tokens. Their positions are those after P.
  std::vector<TokenRun> Runs(std::int64_t tokens) const;
  // Returns the mask of a run's queries [L, K] for the keys up to the last of them, or [B, 1, L, K]
  // with documents, in the dtype of `query`, which is added to the scores: 0 up to the query's own
  // token, else minus infinity. Returns nullopt if the run begins the sequences and there are no
  // documents; for these, ATen has causal attention.
  std::optional<at::Tensor> Mask(const at::Tensor& query, const TokenRun& run);
  // Returns the masks of the rank's two runs, none without documents. Requires: several ranks
  // divide the tokens.
  std::array<std::optional<at::Tensor>, 2> MasksOfDocuments(const at::Tensor& query);

  // Returns the rows of a table by position for `tokens` tokens of the input, zeros for padding.
  at::Tensor Rows(const at::Tensor& table, std::int64_t tokens) const;
  // Returns the rows likewise by position in the token's document, if there are any.
  RotaryTable RotaryOf(const RotaryTable& table, std::int64_t tokens) const;
  // Returns the position of each token in its document, [B, S] int64; below `positions` for
  // padding, too. Requires: OfDocuments.
  at::Tensor PositionsInDocuments(std::int64_t positions) const;

  // Returns the keys and values of the layers so far, each contiguous [B, S', G, E].
  const std::vector<at::Tensor>& Own() const { return own_; }

 private:
  at::Tensor WithEarlier(const at::Tensor& own);
  at::Tensor MakeMask(const at::Tensor& query, const TokenRun& run) const;

  int slices_ = -1;  // number of earlier slices; -1 for whole sequences
  std::int64_t start_ = 0;
  std::vector<at::Tensor> earlier_;
  std::vector<at::Tensor> own_;
  ContextPlace place_;
  at::Tensor documents_;  // the start of each token's document; undefined without
  std::map<std::int64_t, at::Tensor> masks_;  // by the run's first token; all layers share them
  KeyValueCache* cache_ = nullptr;
  std::size_t cached_ = 0;  // tensors that this forward has stored there
};

}  // namespace penstock
