#include "scenario/candidates.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <iterator>

#include "base/text/nearest.h"
#include "base/text/quote.h"
#include "base/text/split.h"
#include "scenario/own_fields.h"
#include "schedule/catalog.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

const std::vector<std::string_view> kEndings = {".csv", ".yaml", ".yml", ".json", ".gz"};

// The ending in lower case; empty if there is none.
std::string EndingOf(const std::string& word) {
  std::string ending = fs::path(word).extension().string();
  std::transform(ending.begin(), ending.end(), ending.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return ending;
}

bool Exists(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error);
}

// Splits at commas, except in paths that contain one.
std::vector<std::string> SplitAtCommas(const std::vector<std::string>& words) {
  std::vector<std::string> parts;
  for (const std::string& word : words) {
    if (Exists(word)) {
      parts.push_back(word);
    } else {
      std::ranges::move(SplitAt(word, ','), std::back_inserter(parts));
    }
  }
  return parts;
}

bool IsPath(const std::string& word) {
  if (word.find('/') != std::string::npos) return true;
  return !FindAlgorithm(word) && (!EndingOf(word).empty() || Exists(word));
}

// Separates the options: "interleaved:v=4" has the name "interleaved". A path that exists has none,
// whatever its characters.
Result<FieldTexts> TakeOptions(std::string& word) {
  const std::size_t colon = word.find(':');
  if (colon == std::string::npos || Exists(word)) return FieldTexts();
  auto options = ParseOwnFields(std::string_view(word).substr(colon + 1));
  if (!options) return tl::unexpected(In(Quote(word), std::move(options).error()));
  word.resize(colon);
  return options;
}

// A path that ends in neither .csv nor .yaml: a trace, or a folder.
Status CheckOtherPath(const std::string& word) {
  std::error_code error;
  const std::string ending = EndingOf(word);
  if (fs::is_directory(word, error)) return {};
  if (ending == ".json" || ending == ".gz") {
    if (Exists(word)) return {};
    return NotFound("there is no file {}", Quote(word));
  }
  if (ending.empty()) {
    if (Exists(word)) return {};
    return NotFound("there is no file or folder {}", Quote(word));
  }
  return InvalidArgument(
      "{} ends in none of .csv (a schedule), .json (a trace), .yaml and .yml (a configuration); {}",
      Quote(word),
      DidYouMean(ending, kEndings, fmt::format("if it is a schedule, give `csv` {}", word)));
}

}  // namespace

Result<ReadWords> ReadCandidates(const std::vector<std::string>& words) {
  ReadWords read;
  for (const std::string& written : SplitAtCommas(words)) {
    std::string word = written;
    PENSTOCK_TRY(FieldTexts options, TakeOptions(word));
    const std::string ending = EndingOf(word);
    if (ending == ".yaml" || ending == ".yml") {
      if (!read.config.empty()) {
        return InvalidArgument("{} and {} are both configurations; give one", read.config, word);
      }
      if (!options.empty()) {
        return InvalidArgument("{}: a configuration takes no options after ':'", Quote(written));
      }
      read.config = word;
      continue;
    }
    const bool is_csv = ending == ".csv";
    const bool is_path = is_csv || IsPath(word);
    if (is_path && !is_csv) PENSTOCK_TRY_STATUS(CheckOtherPath(word));
    read.candidates.push_back({is_path ? Candidate::Kind::kFile : Candidate::Kind::kAlgorithm, word,
                               std::move(options), written});
  }
  return read;
}

}  // namespace penstock
