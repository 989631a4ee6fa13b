#include "train/data/data.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <unordered_set>

#include "base/files.h"
#include "base/index.h"
#include "base/mix_bits.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kSectionLeast = 64;
constexpr std::size_t kSectionMost = 4096;
constexpr std::size_t kSectionsOfText = 100;

// Returns a hash that is equal for documents that differ only in spaces, case and punctuation.
std::uint64_t IdentityOf(std::string_view document) {
  std::uint64_t hash = 14695981039346656037ULL;
  bool letters = false;
  const auto add = [&hash](char c) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  };
  for (const char c : document) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && static_cast<signed char>(c) >= 0) {
      continue;
    }
    letters = true;
    add(static_cast<char>(std::tolower(static_cast<unsigned char>(c))));
  }
  if (!letters)
    std::for_each(document.begin(), document.end(), add);  // an ASCII drawing, for example
  return SeedOf(hash, 0);
}

bool IsBinary(std::string_view text) {
  return std::find(text.begin(), text.end(), static_cast<char>(kEndOfDocument)) != text.end();
}

std::string_view Trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == '\n' || text.front() == '\r')) text.remove_prefix(1);
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back())) != 0) {
    text.remove_suffix(1);
  }
  return text;
}

void AddDocument(std::string_view text, std::vector<std::string_view>& documents) {
  if (text = Trimmed(text); !text.empty()) documents.push_back(text);
}

// Returns the start of the next line at or after `from` that consists of '%'; npos if there is
// none.
std::size_t NextSeparator(std::string_view text, std::size_t from) {
  while ((from = text.find('%', from)) != std::string_view::npos) {
    const bool begins = from == 0 || text[from - 1] == '\n';
    const std::size_t after = from + 1;
    if (begins && (after == text.size() || text[after] == '\n' || text[after] == '\r')) {
      return from;
    }
    from = after;
  }
  return from;
}

std::size_t SectionEnd(std::string_view text, std::size_t least) {
  if (text.size() < 2 * least) return text.size();
  for (const std::string_view mark : {"\n\n", "\n", " "}) {
    const std::size_t found = text.substr(0, 2 * least).find(mark, least);
    if (found != std::string_view::npos) return found + mark.size();
  }
  return least;
}

Result<std::vector<std::string>> FilesBelow(const std::string& path) {
  std::error_code error;
  std::vector<std::string> files;
  if (!fs::is_directory(path, error)) {
    files.push_back(path);
    return files;
  }
  fs::recursive_directory_iterator entry(path, error);
  for (; !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    // A link would read the same text twice, and leak held-out text into training.
    if (!entry->is_symlink(error) && entry->is_regular_file(error)) {
      files.push_back(entry->path().string());
    }
  }
  if (error) return InvalidArgument("cannot read the folder {}: {}", path, error.message());
  std::sort(files.begin(), files.end());
  return files;
}

struct Document {
  std::string_view text;
  std::uint64_t identity = 0;
  bool held_out = false;
};

// Marks documents as held out until they contain `share` of the bytes. Visits them in the order of
// their hashes, which is random but the same in every run. Leaves at least one document on each
// side.
void HoldOut(std::vector<Document>& documents, double share) {
  std::vector<Document*> order;
  std::size_t bytes = 0;
  for (Document& document : documents) {
    order.push_back(&document);
    bytes += document.text.size() + 1;
  }
  std::sort(order.begin(), order.end(),
            [](const Document* a, const Document* b) { return a->identity < b->identity; });
  order.pop_back();
  std::size_t held = 0;
  for (Document* document : order) {
    if (static_cast<double>(held) >= share * static_cast<double>(bytes)) break;
    document->held_out = true;
    held += document->text.size() + 1;
  }
}

}  // namespace

std::vector<std::string_view> SplitDocuments(std::string_view text) {
  std::vector<std::string_view> documents;
  std::size_t separator = NextSeparator(text, 0);
  if (separator != std::string_view::npos) {
    std::size_t begin = 0;
    for (; separator != std::string_view::npos; separator = NextSeparator(text, begin)) {
      AddDocument(text.substr(begin, separator - begin), documents);
      begin = separator + 1;
    }
    AddDocument(text.substr(begin), documents);
    return documents;
  }
  const std::size_t least = std::clamp(text.size() / kSectionsOfText, kSectionLeast, kSectionMost);
  while (!text.empty()) {
    const std::size_t end = SectionEnd(text, least);
    AddDocument(text.substr(0, end), documents);
    text.remove_prefix(end);
  }
  return documents;
}

Result<std::vector<std::string>> ReadTexts(const std::string& path) {
  PENSTOCK_TRY(const std::vector<std::string> files, FilesBelow(path));
  std::error_code error;
  const bool is_folder = fs::is_directory(path, error);
  std::vector<std::string> texts;
  for (const std::string& file : files) {
    PENSTOCK_TRY(std::string text, ReadFile(file));
    if (!is_folder || !IsBinary(text)) texts.push_back(std::move(text));
  }
  return texts;
}

Result<Corpus> LoadCorpus(const std::string& path, double held_out) {
  std::error_code error;
  if (!fs::exists(path, error)) {
    return NotFound(
        "no text at {}; give a text file, or a folder of them (the default needs 'apt-get install "
        "fortunes fortunes-min')",
        path);
  }
  PENSTOCK_TRY(const std::vector<std::string> files, FilesBelow(path));
  Corpus corpus;
  std::vector<std::string> texts;
  for (const std::string& file : files) {
    PENSTOCK_TRY(std::string text, ReadFile(file));
    if (!IsBinary(text)) texts.push_back(std::move(text));
  }
  std::vector<Document> documents;
  std::unordered_set<std::uint64_t> seen;
  for (const std::string& text : texts) {
    const std::size_t before = documents.size();
    for (const std::string_view document : SplitDocuments(text)) {
      const std::uint64_t identity = IdentityOf(document);
      if (seen.insert(identity).second) documents.push_back({document, identity});
    }
    if (documents.size() > before) ++corpus.files;
  }
  if (documents.empty()) {
    return InvalidArgument(
        "{} contains no text ({} files, all empty or binary); set data.path to a text", path,
        files.size());
  }
  if (documents.size() < 2) {
    return InvalidArgument("{} contains too little text to hold out a part of it: {} bytes", path,
                           documents.front().text.size());
  }
  HoldOut(documents, held_out);
  for (const Document& document : documents) {
    std::vector<std::uint8_t>& part = document.held_out ? corpus.held_out : corpus.train;
    part.insert(part.end(), document.text.begin(), document.text.end());
    part.push_back(kEndOfDocument);
  }
  corpus.documents = static_cast<int>(documents.size());
  return corpus;
}

Status CheckLength(const Corpus& corpus, std::int64_t sequence) {
  const auto needed = Index(sequence) + 1;
  if (corpus.train.size() >= needed && corpus.held_out.size() >= needed) return {};
  return InvalidArgument(
      "the text is too short: {} bytes to train on and {} held out, but one sample needs {}; "
      "use more text, a larger data.held_out or a smaller model.sequence",
      corpus.train.size(), corpus.held_out.size(), needed);
}

std::span<const std::uint8_t> Sampler::Sample(std::int64_t step, std::int64_t sample) const {
  const std::uint64_t random =
      SeedOf(SeedOf(SeedOf(seed_, 0) ^ static_cast<std::uint64_t>(step), 0) ^
                 static_cast<std::uint64_t>(sample),
             0);
  return text_.subspan(random % (text_.size() - sequence_), sequence_ + 1);
}

void Sampler::Copy(std::int64_t step, std::int64_t sample, std::size_t begin,
                   std::span<std::int64_t> to) const {
  const auto bytes = Sample(step, sample).subspan(begin, to.size());
  std::copy(bytes.begin(), bytes.end(), to.begin());
}

}  // namespace penstock
