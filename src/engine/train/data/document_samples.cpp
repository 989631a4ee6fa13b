#include "train/data/document_samples.h"

#include <algorithm>
#include <set>

#include "base/digest.h"
#include "base/index.h"
#include "base/mix_bits.h"
#include "train/data/permutation.h"

namespace penstock {
namespace {

constexpr std::uint64_t kReadAtOnce = std::uint64_t{1} << 16U;  // tokens

}  // namespace

DocumentSamples::DocumentSamples(TokenSet set, const std::vector<std::int64_t>& lengths, int batch,
                                 std::uint64_t seed)
    : set_(std::move(set)), batch_(Index(batch)), seed_(seed) {
  for (const std::int64_t length : std::set<std::int64_t>(lengths.begin(), lengths.end())) {
    buckets_.push_back({static_cast<std::uint64_t>(length), 0, {}});
  }
  for (const std::int64_t length : lengths) {
    const auto bucket = std::ranges::find(buckets_, Index(length), &Bucket::length);
    microbatches_.push_back({Index(bucket - buckets_.begin()), bucket->per_step});
    bucket->per_step += batch_;
  }
  progress_ = DataProgress(Digests());
}

// The longest length determines how documents are divided, and the next shorter one which pieces
// are of a length.
std::vector<std::string> DocumentSamples::Digests() const {
  std::vector<std::string> digests;
  std::uint64_t shorter = 0;
  for (const Bucket& bucket : buckets_) {
    digests.push_back(Digest(
        fmt::format("{} {} {} {}", set_.digest(), shorter, bucket.length, buckets_.back().length)));
    shorter = bucket.length;
  }
  return digests;
}

Result<DocumentSamples> DocumentSamples::Make(TokenSet set, TokenId end,
                                              const std::vector<std::int64_t>& lengths, int batch,
                                              std::uint64_t seed) {
  DocumentSamples samples(std::move(set), lengths, batch, seed);
  samples.FindDocuments(end);
  std::uint64_t shorter = 0;
  for (const Bucket& bucket : samples.buckets_) {
    if (bucket.pieces.empty()) {
      return InvalidParameter(
          "data.lengths",
          ": no document has {} to {} tokens, which are samples of length {}; remove "
          "it",
          shorter + 2, bucket.length + 1, bucket.length);
    }
    shorter = bucket.length;
  }
  return samples;
}

void DocumentSamples::FindDocuments(std::uint64_t end) {
  std::vector<std::int64_t> tokens;
  std::uint64_t document = 0;  // its first token
  for (std::uint64_t begin = 0; begin < set_.size(); begin += tokens.size()) {
    tokens.resize(std::min(kReadAtOnce, set_.size() - begin));
    set_.Read(begin, tokens);
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      if (tokens[i] != static_cast<std::int64_t>(end)) continue;
      AddDocument(document, begin + i + 1);
      document = begin + i + 1;
    }
  }
  AddDocument(document, set_.size());
}

// A token is only a target, so a piece has one more than its inputs. A single token is no sample.
void DocumentSamples::AddDocument(std::uint64_t begin, std::uint64_t end) {
  const std::uint64_t most = buckets_.back().length;
  for (; begin + 1 < end; begin += most) {
    const std::uint64_t inputs = std::min(most, end - begin - 1);
    const auto bucket = std::ranges::lower_bound(buckets_, inputs, {}, &Bucket::length);
    bucket->pieces.push_back({begin, inputs + 1});
  }
}

const DocumentSamples::TokenRange& DocumentSamples::RangeOf(std::int64_t step,
                                                            std::int64_t sample) const {
  const auto of_step = static_cast<std::uint64_t>(sample);
  const MicrobatchSamples& samples = microbatches_[of_step / batch_];
  const Bucket& bucket = buckets_[samples.bucket];
  const std::uint64_t number =
      progress_.consumed_before(samples.bucket) +
      static_cast<std::uint64_t>(step - progress_.first_step()) * bucket.per_step + samples.first +
      of_step % batch_;
  const std::uint64_t count = bucket.pieces.size();
  const std::uint64_t seed = SeedOf(SeedOf(seed_, progress_.order(samples.bucket)), number / count);
  return bucket.pieces[PermutedIndex(number % count, count, seed)];
}

void DocumentSamples::Copy(std::int64_t step, std::int64_t sample, std::size_t begin,
                           std::span<std::int64_t> to) const {
  const TokenRange& piece = RangeOf(step, sample);
  const std::size_t first = std::min<std::uint64_t>(begin, piece.tokens);
  const std::size_t count = std::min<std::uint64_t>(piece.tokens - first, to.size());
  set_.Read(piece.begin + first, to.first(count));
  std::ranges::fill(to.subspan(count), kNoToken);
}

std::vector<ConsumedData> DocumentSamples::ConsumedAfter(std::int64_t steps) const {
  std::vector<std::uint64_t> more;
  for (const Bucket& bucket : buckets_) {
    more.push_back(static_cast<std::uint64_t>(steps - progress_.first_step()) * bucket.per_step);
  }
  return progress_.After(more);
}

void DocumentSamples::ContinueAfter(std::int64_t step, const std::vector<ConsumedData>& consumed) {
  progress_.ContinueAfter(step, consumed);
}

double DocumentSamples::padding() const {
  double inputs = 0;
  double real = 0;
  for (const Bucket& bucket : buckets_) {
    double tokens = 0;
    for (const TokenRange& piece : bucket.pieces) tokens += static_cast<double>(piece.tokens - 1);
    const auto samples = static_cast<double>(bucket.per_step);
    real += samples * tokens / static_cast<double>(bucket.pieces.size());
    inputs += samples * static_cast<double>(bucket.length);
  }
  return 1 - real / inputs;
}

}  // namespace penstock
