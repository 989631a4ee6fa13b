#include "train/data/token_set.h"

#include <algorithm>

#include "base/digest.h"
#include "base/mix_bits.h"

namespace penstock {
namespace {

constexpr std::uint64_t kHeldOutSeed = 0x4E1D007;

// A number in [0, 1) that is random but the same in every run.
double DrawOfDocument(std::size_t document) {
  return static_cast<double>(SeedOf(kHeldOutSeed, document) >> 11U) * 0x1p-53;
}

// What the index says about the tokens. Folders of earlier versions have counts only.
std::string DescribeTokens(const TokenIndex& index) {
  std::string files = fmt::format("{} {} {}", index.tokens, index.documents, index.digest);
  for (const TokenShard& shard : index.shards) files += " " + shard.digest;
  return files + " " + index.documents_digest;
}

}  // namespace

TokenSet::TokenSet(std::vector<TokenId> train, std::vector<TokenId> held_out)
    : train_(std::move(train)), held_out_(std::move(held_out)), size_(train_.size()) {
  const std::span<const TokenId> tokens = train_;
  digest_ = Digest({reinterpret_cast<const char*>(tokens.data()), tokens.size_bytes()});
}

Result<TokenSet> TokenSet::Open(const std::string& path, double held_out) {
  PENSTOCK_TRY(TokenFolder folder, TokenFolder::Open(path));
  if (folder.document_ends().size() < 2) {
    return InvalidArgument(
        "{} has one document, but at least one is held out: tokenize more "
        "documents, or name the document separator",
        path);
  }
  TokenSet set;
  set.folder_ = std::make_shared<const TokenFolder>(std::move(folder));
  set.HoldOutDocuments(held_out);
  set.digest_ = Digest(fmt::format("{} {}", DescribeTokens(set.folder_->index()), set.size_));
  return set;
}

void TokenSet::HoldOutDocuments(double share) {
  const std::span<const std::uint64_t> ends = folder_->document_ends();
  // The document that is held out if no other one is.
  std::size_t lowest = 0;
  for (std::size_t i = 1; i < ends.size(); ++i) {
    if (DrawOfDocument(i) < DrawOfDocument(lowest)) lowest = i;
  }
  const auto most =
      std::min(static_cast<double>(kMostHeldOut), share * static_cast<double>(folder_->size()));
  // Held-out documents come from all of the folder even if only a small share of it may be.
  const double chance = most / static_cast<double>(folder_->size());
  std::vector<std::int64_t> tokens;
  bool continues = false;  // whether the previous document is one to train on
  bool any_to_train = false;
  for (std::size_t i = 0; i < ends.size(); ++i) {
    const std::uint64_t begin = i == 0 ? 0 : ends[i - 1];
    const std::uint64_t length = ends[i] - begin;
    const bool is_last_chance = i + 1 == ends.size() && !any_to_train;
    const bool fits = static_cast<double>(held_out_.size() + length) <= 2 * most;
    const bool held = (i == lowest || (fits && DrawOfDocument(i) < chance)) && !is_last_chance;
    if (held) {
      tokens.resize(length);
      folder_->Read(begin, tokens);
      held_out_.insert(held_out_.end(), tokens.begin(), tokens.end());
    } else {
      if (!continues) ranges_.push_back({size_, begin});
      size_ += length;
      any_to_train = true;
    }
    continues = !held;
  }
}

void TokenSet::Read(std::uint64_t begin, std::span<std::int64_t> to) const {
  if (folder_ == nullptr) {
    std::copy_n(train_.begin() + static_cast<std::ptrdiff_t>(begin), to.size(), to.begin());
    return;
  }
  auto range = std::ranges::upper_bound(ranges_, begin, {}, &Range::begin) - 1;
  while (!to.empty()) {
    const auto next = range + 1;
    const std::uint64_t end = next == ranges_.end() ? size_ : next->begin;
    const std::size_t count = std::min<std::uint64_t>(end - begin, to.size());
    folder_->Read(range->in_folder + (begin - range->begin), to.first(count));
    to = to.subspan(count);
    begin += count;
    range = next;
  }
}

}  // namespace penstock
