#include "tokens/files/token_folder.h"

#include <algorithm>
#include <filesystem>
#include <stdexcept>

#include "base/digest.h"
#include "base/files.h"
#include "base/text/quote.h"
#include "base/text/strict_json.h"
#include "tokens/kinds/open_tokenizer.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kFormat = "penstock-tokens";
constexpr std::uint64_t kVersion = 1;
constexpr std::uint64_t kMostTokens = std::uint64_t{1} << 48U;
constexpr FileLimit kIndexLimit{std::size_t{64} << 20U, "index"};

// A name must not lead out of the folder.
Result<std::string> NameMember(const json& object, const char* key, std::string_view what) {
  PENSTOCK_TRY(std::string name, TextMember(object, key, what));
  if (name.empty() || name.front() == '.' || name.find('/') != name.npos) {
    return InvalidArgument("{}: {} is not the name of a file", what, Quote(name));
  }
  return name;
}

// Reads the digest of a file, which folders of earlier versions do not have.
Result<std::string> DigestMember(const json& object, const char* key, std::string_view what) {
  if (!object.is_object() || !object.contains(key)) return std::string();
  return TextMember(object, key, what);
}

Result<TokenShard> ReadShard(const json& object) {
  constexpr const char* kWhat = "a shard";
  TokenShard shard;
  PENSTOCK_TRY(shard.file, NameMember(object, "file", kWhat));
  PENSTOCK_TRY(shard.tokens, CountMember(object, "tokens", kWhat, kMostTokens));
  PENSTOCK_TRY(shard.documents, CountMember(object, "documents", kWhat, kMostTokens));
  PENSTOCK_TRY(shard.digest, DigestMember(object, "digest", kWhat));
  return shard;
}

Status ReadTokenizer(const json& object, TokenIndex& index) {
  constexpr const char* kWhat = "tokenizer";
  PENSTOCK_TRY(index.digest, TextMember(object, "digest", kWhat));
  PENSTOCK_TRY(const std::uint64_t vocabulary,
               CountMember(object, "vocabulary", kWhat, std::uint64_t{1} << 32U));
  index.vocabulary = static_cast<std::int64_t>(vocabulary);
  const auto end = object.find("end_of_text");
  if (end != object.end() && !end->is_null()) {
    PENSTOCK_TRY(const std::uint64_t id, CountMember(object, "end_of_text", kWhat, vocabulary));
    index.end_of_text = static_cast<TokenId>(id);
  }
  PENSTOCK_TRY(const json* const files, MemberOf(object, "files", kWhat));
  for (const json& file : *files) {
    PENSTOCK_TRY(std::string name, NameMember({{"file", file}}, "file", kWhat));
    index.tokenizer_files.push_back(std::move(name));
  }
  return {};
}

Status CheckCounts(const TokenIndex& index) {
  std::uint64_t tokens = 0;
  std::uint64_t documents = 0;
  for (const TokenShard& shard : index.shards) {
    tokens += shard.tokens;
    documents += shard.documents;
    if (tokens > kMostTokens) return InvalidArgument("it has more than {} tokens", kMostTokens);
  }
  if (tokens == index.tokens && documents == index.documents) return {};
  return InvalidArgument("the shards have {} tokens and {} documents, the index {} and {}", tokens,
                         documents, index.tokens, index.documents);
}

Status CheckSize(const std::string& path, const MappedFile& file, std::uint64_t size) {
  if (file.size() == size) return {};
  return InvalidArgument("{} has {} bytes instead of {}: write the folder again", path, file.size(),
                         size);
}

Status CheckDigest(const std::string& path, const MappedFile& file, const std::string& digest) {
  if (digest.empty() || NamedDigest(file.bytes()) == digest) return {};
  return InvalidArgument(
      "{} is damaged: it does not have the digest in {}; tokenize the text again", path,
      kTokenIndexFile);
}

// Returns the position of the first id outside of the vocabulary, or the number of tokens.
template <class T>
std::size_t FindOutside(std::span<const T> tokens, std::int64_t vocabulary) {
  T largest = 0;
  for (const T id : tokens) largest = std::max(largest, id);  // vectorized
  if (static_cast<std::int64_t>(largest) < vocabulary) return tokens.size();
  const auto outside = [&](T id) { return static_cast<std::int64_t>(id) >= vocabulary; };
  return static_cast<std::size_t>(std::ranges::find_if(tokens, outside) - tokens.begin());
}

template <class T>
Status CheckIds(const std::string& path, std::span<const T> tokens, std::int64_t vocabulary) {
  const std::size_t position = FindOutside(tokens, vocabulary);
  if (position == tokens.size()) return {};
  return InvalidArgument(
      "{} is damaged: token {} has the id {}, but the tokenizer has only {} tokens; tokenize the "
      "text again",
      path, position, tokens[position], vocabulary);
}

Status CheckShard(const std::string& path, const MappedFile& file, const TokenShard& shard,
                  const TokenIndex& index) {
  PENSTOCK_TRY_STATUS(
      CheckSize(path, file, shard.tokens * static_cast<std::uint64_t>(index.bytes_per_token)));
  PENSTOCK_TRY_STATUS(index.bytes_per_token == 2
                          ? CheckIds(path, file.As<std::uint16_t>(), index.vocabulary)
                          : CheckIds(path, file.As<std::uint32_t>(), index.vocabulary));
  return CheckDigest(path, file, shard.digest);
}

}  // namespace

std::string ToJson(const TokenIndex& index) {
  nlohmann::ordered_json file = {{"format", kFormat},
                                 {"version", kVersion},
                                 {"dtype", index.bytes_per_token == 2 ? "u16" : "u32"},
                                 {"tokens", index.tokens},
                                 {"documents", index.documents}};
  file["tokenizer"] = {{"digest", index.digest},
                       {"vocabulary", index.vocabulary},
                       {"end_of_text", nullptr},
                       {"files", index.tokenizer_files}};
  if (index.end_of_text) file["tokenizer"]["end_of_text"] = *index.end_of_text;
  file["shards"] = json::array();
  for (const TokenShard& shard : index.shards) {
    file["shards"].push_back({{"file", shard.file},
                              {"tokens", shard.tokens},
                              {"documents", shard.documents},
                              {"digest", shard.digest}});
  }
  file["documents_digest"] = index.documents_digest;
  return file.dump(2) + "\n";
}

Result<TokenIndex> ParseTokenIndex(std::string_view text) {
  constexpr const char* kWhat = "the index";
  PENSTOCK_TRY(const json file, ParseStrictJson(text));
  PENSTOCK_TRY(const std::string format, TextMember(file, "format", kWhat));
  PENSTOCK_TRY(const std::uint64_t version, CountMember(file, "version", kWhat));
  if (format != kFormat || version != kVersion) {
    return InvalidArgument("it is not an index of {}, version {}", kFormat, kVersion);
  }
  TokenIndex index;
  PENSTOCK_TRY(const std::string dtype, TextMember(file, "dtype", kWhat));
  if (dtype != "u16" && dtype != "u32") return InvalidArgument("the dtype is not u16 or u32");
  index.bytes_per_token = dtype == "u16" ? 2 : 4;
  PENSTOCK_TRY(index.tokens, CountMember(file, "tokens", kWhat, kMostTokens));
  PENSTOCK_TRY(index.documents, CountMember(file, "documents", kWhat, kMostTokens));
  PENSTOCK_TRY(const json* const tokenizer, MemberOf(file, "tokenizer", kWhat));
  PENSTOCK_TRY_STATUS(ReadTokenizer(*tokenizer, index));
  PENSTOCK_TRY(const json* const shards, MemberOf(file, "shards", kWhat));
  for (const json& each : *shards) {
    PENSTOCK_TRY(TokenShard shard, ReadShard(each));
    index.shards.push_back(std::move(shard));
  }
  PENSTOCK_TRY(index.documents_digest, DigestMember(file, "documents_digest", kWhat));
  PENSTOCK_TRY_STATUS(CheckCounts(index));
  return index;
}

bool IsTokenFolder(const std::string& path) {
  std::error_code error;
  return fs::exists(fs::symlink_status(fs::path(path) / kTokenIndexFile, error));
}

Result<TokenIndex> ReadTokenIndex(const std::string& path) {
  const std::string index_path = (fs::path(path) / kTokenIndexFile).string();
  PENSTOCK_TRY(const std::string text, ReadFile(index_path, kIndexLimit));
  auto index = ParseTokenIndex(text);
  if (!index) return InvalidArgument("{}: {}", index_path, index.error().line());
  return index;
}

Result<TokenFolder> TokenFolder::Open(const std::string& path) {
  PENSTOCK_TRY(TokenIndex index, ReadTokenIndex(path));
  const std::string documents_path = (fs::path(path) / kDocumentsFile).string();
  PENSTOCK_TRY(MappedFile documents, MappedFile::Open(documents_path));
  PENSTOCK_TRY_STATUS(
      CheckSize(documents_path, documents, index.documents * sizeof(std::uint64_t)));
  TokenFolder folder(std::move(documents));
  folder.path_ = path;
  std::uint64_t begin = 0;
  for (const TokenShard& shard : index.shards) {
    const std::string shard_path = (fs::path(path) / shard.file).string();
    PENSTOCK_TRY(MappedFile file, MappedFile::Open(shard_path));
    PENSTOCK_TRY_STATUS(CheckShard(shard_path, file, shard, index));
    folder.shards_.push_back(std::move(file));
    folder.begins_.push_back(begin);
    begin += shard.tokens;
  }
  const auto ends = folder.document_ends();
  PENSTOCK_TRY_STATUS(CheckDigest(documents_path, folder.documents_, index.documents_digest));
  if (!std::ranges::is_sorted(ends) || (!ends.empty() && ends.back() != begin)) {
    return InvalidArgument("{} is damaged: write the folder again", documents_path);
  }
  folder.index_ = std::move(index);
  return folder;
}

std::string TokenizerOfTokens(const std::string& path, const TokenIndex& index) {
  if (index.tokenizer_files.empty()) return std::string(kByteTokenizer);
  return (fs::path(path) / index.tokenizer_files.front()).string();
}

std::string TokenFolder::note() const {
  const bool checked =
      !index_.documents_digest.empty() &&
      std::ranges::none_of(index_.shards, &std::string::empty, &TokenShard::digest);
  if (checked) return {};
  return fmt::format(
      "{} was written by an earlier version and has no digests, so damage to its files is "
      "not noticed: tokenize the text again",
      path_);
}

void TokenFolder::Read(std::uint64_t begin, std::span<std::int64_t> to) const {
  const auto after = std::ranges::upper_bound(begins_, begin);
  auto shard = static_cast<std::size_t>(after - begins_.begin()) - 1;
  const auto copy = [&](const auto& tokens, std::uint64_t from) {
    const std::size_t count = std::min<std::size_t>(tokens.size() - from, to.size());
    const auto part = tokens.subspan(from, count);
    if (auto status = CheckIds(index_.shards[shard].file, part, index_.vocabulary); !status) {
      throw std::runtime_error(status.error().line());
    }
    std::ranges::copy(part, to.begin());
    to = to.subspan(count);
  };
  for (std::uint64_t from = begin - begins_[shard]; !to.empty(); ++shard, from = 0) {
    if (index_.bytes_per_token == 2) {
      copy(shards_[shard].As<std::uint16_t>(), from);
    } else {
      copy(shards_[shard].As<std::uint32_t>(), from);
    }
  }
}

}  // namespace penstock
