// The training text: reading, splitting and sampling. No torch here.
//
// A token is a byte. The text is split into documents: fortunes, or sections of any other file.
// Each document belongs entirely to the training or the held-out part. Documents that differ only
// in spaces, case and punctuation count as one, so that nothing held out is trained on.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tokens/kinds/byte_tokenizer.h"
#include "train/data/sample_source.h"

namespace penstock {

// Bytes of documents, each followed by kEndOfDocument. Files that contain this byte are binary and
// are skipped.
struct Corpus {
  std::vector<std::uint8_t> train;
  std::vector<std::uint8_t> held_out;
  int files = 0;
  int documents = 0;  // after duplicates were removed
};

// Loads `path`, a file or a folder. A folder is read recursively in order of names; links and
// binary files are skipped. `held_out` is the share of bytes to hold out, at least one document.
// Errors: kNotFound if the path does not exist; kInvalidArgument if it contains no text, or too
// little to split.
Result<Corpus> LoadCorpus(const std::string& path, double held_out);

// Returns the texts of a file, or of the files below a folder in the order of their names. Skips
// binary files and links of a folder. Errors: kNotFound if the path does not exist.
Result<std::vector<std::string>> ReadTexts(const std::string& path);

// Splits one text into documents: between lines that consist of "%", if there are any; otherwise
// into sections of about a hundredth of the text (64 to 4096 bytes) that end at an empty line, a
// line end or a space.
std::vector<std::string_view> SplitDocuments(std::string_view text);

// Rejects a corpus in which a part is too short for one sample of `sequence` tokens and the target
// of the last one.
Status CheckLength(const Corpus& corpus, std::int64_t sequence);

// Chooses the samples of a step from a text of bytes, at random positions.
class Sampler : public SampleSource {
 public:
  // `text` must outlive the sampler and be longer than `sequence`.
  Sampler(std::span<const std::uint8_t> text, std::int64_t sequence, std::uint64_t seed)
      : text_(text), sequence_(sequence), seed_(seed) {}

  // Returns sequence + 1 bytes: the tokens of a sample are all but the last, its targets all but
  // the first.
  std::span<const std::uint8_t> Sample(std::int64_t step, std::int64_t sample) const;
  void Copy(std::int64_t step, std::int64_t sample, std::size_t begin,
            std::span<std::int64_t> to) const override;

 private:
  std::span<const std::uint8_t> text_;
  std::size_t sequence_;
  std::uint64_t seed_;
};

}  // namespace penstock
