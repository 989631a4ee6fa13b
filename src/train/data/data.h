// Text to train on: read, split, and cut into batches. No torch here.
//
// A token is a byte. The text is cut into documents (fortunes, or sections of any other file); each
// document goes whole to the training or to the held-out part, and documents that are
// equal but for spaces, case and punctuation are one, so that nothing held out has been trained on.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace penstock {

// Follows each document. Text has no byte 0: files that hold one are binary and are skipped.
inline constexpr std::uint8_t kEndOfDocument = 0;

// Bytes of documents, each followed by kEndOfDocument.
struct Corpus {
  std::vector<std::uint8_t> train;
  std::vector<std::uint8_t> held_out;
  int files = 0;
  int documents = 0;  // after equal ones were merged
};

// `path` is a file or a folder (read whole, in the order of names; links and binary files are
// skipped). `held_out` is the share of bytes held out, at least one document.
// Errors: kNotFound where there is no such path; kInvalidArgument where it holds no text, or too
// little to split.
Result<Corpus> LoadCorpus(const std::string& path, double held_out);

// One text's documents: between lines of "%" alone, if there are any; else sections of about a
// hundredth of the text (64 to 4096 bytes), ended at a blank line, a line's end or a blank.
std::vector<std::string_view> SplitDocuments(std::string_view text);

// Refuses a corpus whose parts are not longer than one sample of `sequence` tokens and the target
// behind it.
Status CheckLength(const Corpus& corpus, std::int64_t sequence);

// Which samples a step trains on: a function of seed, step and the sample's number in its batch
// alone, whatever ranks, chunks and microbatches there are. Threads: any, it never changes.
class Sampler {
 public:
  // `text` must outlive the sampler and be longer than `sequence`.
  Sampler(std::span<const std::uint8_t> text, std::int64_t sequence, std::uint64_t seed)
      : text_(text), sequence_(sequence), seed_(seed) {}

  // sequence + 1 bytes: a sample's tokens are all but the last, its targets all but the first.
  std::span<const std::uint8_t> Sample(std::int64_t step, std::int64_t sample) const;

 private:
  std::span<const std::uint8_t> text_;
  std::size_t sequence_;
  std::uint64_t seed_;
};

}  // namespace penstock
