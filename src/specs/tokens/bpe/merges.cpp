#include "tokens/bpe/merges.h"

#include <algorithm>
#include <functional>
#include <limits>

namespace penstock {
namespace {

constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();
// From here on, a heap is faster than looking at all pairs for each merge.
constexpr std::size_t kMany = 48;

}  // namespace

void Merges::MergeAll(std::vector<TokenId>& ids, std::size_t begin, MergeScratch& scratch) const {
  if (ids.size() - begin < kMany) {
    MergeFew(ids, begin, scratch);
  } else {
    MergeMany(ids, begin, scratch);
  }
}

void Merges::MergeFew(std::vector<TokenId>& ids, std::size_t begin, MergeScratch& scratch) const {
  std::vector<Merge>& pairs = scratch.pairs;
  const auto merge_of = [&](std::size_t pair) {
    const Merge* const found = Find(ids[begin + pair], ids[begin + pair + 1]);
    return found == nullptr ? Merge{kNone, 0} : *found;
  };
  pairs.clear();
  for (std::size_t pair = 0; begin + pair + 1 < ids.size(); ++pair) pairs.push_back(merge_of(pair));
  while (!pairs.empty()) {
    std::size_t best = 0;
    for (std::size_t pair = 1; pair < pairs.size(); ++pair) {
      if (pairs[pair].rank < pairs[best].rank) best = pair;
    }
    if (pairs[best].rank == kNone) return;
    ids[begin + best] = pairs[best].token;
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(begin + best + 1));
    pairs.erase(pairs.begin() + static_cast<std::ptrdiff_t>(best));
    if (best < pairs.size()) pairs[best] = merge_of(best);
    if (best > 0) pairs[best - 1] = merge_of(best - 1);
  }
}

void Merges::MergeMany(std::vector<TokenId>& ids, std::size_t begin, MergeScratch& scratch) const {
  std::vector<MergeScratch::Symbol>& symbols = scratch.symbols;
  std::vector<MergeScratch::Candidate>& heap = scratch.heap;
  const auto count = static_cast<std::uint32_t>(ids.size() - begin);
  symbols.clear();
  heap.clear();
  for (std::uint32_t i = 0; i < count; ++i) {
    symbols.push_back(
        {ids[begin + i], i == 0 ? kNone : i - 1, i + 1 == count ? kNone : i + 1, false});
  }
  const auto candidate = [&](std::uint32_t left) {
    const Merge* const merge = Find(symbols[left].id, symbols[symbols[left].next].id);
    if (merge != nullptr) heap.push_back({merge->rank, left, merge->token});
    return merge != nullptr;
  };
  const auto push = [&](std::uint32_t left) {
    if (candidate(left)) std::push_heap(heap.begin(), heap.end(), std::greater<>());
  };
  for (std::uint32_t i = 0; i + 1 < count; ++i) candidate(i);
  std::make_heap(heap.begin(), heap.end(), std::greater<>());
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    const MergeScratch::Candidate top = heap.back();
    heap.pop_back();
    MergeScratch::Symbol& left = symbols[top.position];
    if (left.merged || left.next == kNone) continue;
    MergeScratch::Symbol& right = symbols[left.next];
    // The pair has changed if its merge has another result: every merge makes its symbols longer.
    const Merge* const merge = Find(left.id, right.id);
    if (merge == nullptr || merge->token != top.token) continue;
    left.id = top.token;
    right.merged = true;
    left.next = right.next;
    if (left.next != kNone) symbols[left.next].previous = top.position;
    if (left.previous != kNone) push(left.previous);
    if (left.next != kNone) push(top.position);
  }
  ids.resize(begin);
  for (const MergeScratch::Symbol& symbol : symbols) {
    if (!symbol.merged) ids.push_back(symbol.id);
  }
}

}  // namespace penstock
