// DocumentSamples: documents as samples, for microbatches of several lengths.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "train/data/data_progress.h"
#include "train/data/sample_source.h"
#include "train/data/token_set.h"

namespace penstock {

// Each sample is one document, which must fit in the length of its microbatch but in no smaller
// one. Longer documents are divided into pieces of the longest length; a piece shares its last
// target with the next one's first input. The documents of each length have epochs of their own,
// each in another random order.
class DocumentSamples : public SampleSource {
 public:
  // `lengths` are the tokens of the inputs, by microbatch of a step, each of `batch` samples. A
  // token `end` is the last one of its document. Errors: kInvalidArgument if a length has no
  // documents.
  static Result<DocumentSamples> Make(TokenSet set, TokenId end,
                                      const std::vector<std::int64_t>& lengths, int batch,
                                      std::uint64_t seed);

  void Copy(std::int64_t step, std::int64_t sample, std::size_t begin,
            std::span<std::int64_t> to) const override;
  // The documents of each length count as a dataset.
  std::vector<ConsumedData> ConsumedAfter(std::int64_t steps) const override;
  void ContinueAfter(std::int64_t step, const std::vector<ConsumedData>& consumed) override;

  // Returns the expected share of padding in the inputs of a step.
  double padding() const;

 private:
  struct TokenRange {
    std::uint64_t begin = 0;  // of its tokens
    std::uint64_t tokens = 0;
  };
  struct Bucket {
    std::uint64_t length = 0;    // of the inputs
    std::uint64_t per_step = 0;  // samples
    std::vector<TokenRange> pieces;
  };
  // A microbatch's bucket, and its first sample among the bucket's samples in a step.
  struct MicrobatchSamples {
    std::size_t bucket = 0;
    std::uint64_t first = 0;
  };

  DocumentSamples(TokenSet set, const std::vector<std::int64_t>& lengths, int batch,
                  std::uint64_t seed);
  std::vector<std::string> Digests() const;
  void FindDocuments(std::uint64_t end);
  void AddDocument(std::uint64_t begin, std::uint64_t end);
  const TokenRange& RangeOf(std::int64_t step, std::int64_t sample) const;

  TokenSet set_;
  std::uint64_t batch_;
  std::uint64_t seed_;
  std::vector<Bucket> buckets_;                  // shortest first
  std::vector<MicrobatchSamples> microbatches_;  // by microbatch
  DataProgress progress_{{}};                    // by bucket
};

}  // namespace penstock
