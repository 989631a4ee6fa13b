// Merges: the ranked merges of byte-pair encoding (Sennrich et al., Neural Machine Translation of
// Rare Words with Subword Units, ACL 2016).
#pragma once

#include <cstdint>
#include <vector>

#include "tokens/bpe/flat_map.h"
#include "tokens/tokenizer.h"

namespace penstock {

struct Merge {
  std::uint32_t rank = 0;  // lower ranks merge first
  TokenId token = 0;
};

// Memory that MergeAll reuses.
struct MergeScratch {
  struct Symbol {
    TokenId id;
    std::uint32_t previous, next;  // neighbors
    bool merged;                   // into the previous symbol
  };
  struct Candidate {
    std::uint32_t rank, position;
    TokenId token;
    bool operator>(const Candidate& other) const {
      return rank != other.rank ? rank > other.rank : position > other.position;
    }
  };
  std::vector<Merge> pairs;
  std::vector<Symbol> symbols;
  std::vector<Candidate> heap;
};

class Merges {
 public:
  explicit Merges(std::size_t most = 0) : map_(most) {}

  void Set(TokenId left, TokenId right, const Merge& merge) { map_.Set(Key(left, right), merge); }
  const Merge* Find(TokenId left, TokenId right) const { return map_.Find(Key(left, right)); }

  // Merges the ids from `begin` on until no pair has a merge: each time the leftmost of those with
  // the lowest rank. Takes O(n log n) for n ids.
  void MergeAll(std::vector<TokenId>& ids, std::size_t begin, MergeScratch& scratch) const;

 private:
  static std::uint64_t Key(TokenId left, TokenId right) {
    return std::uint64_t{left} << 32U | right;
  }
  void MergeFew(std::vector<TokenId>& ids, std::size_t begin, MergeScratch& scratch) const;
  void MergeMany(std::vector<TokenId>& ids, std::size_t begin, MergeScratch& scratch) const;

  FlatMap<Merge> map_;
};

}  // namespace penstock
