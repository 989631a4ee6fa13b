#include "tokens/files/token_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/digest.h"
#include "base/files.h"
#include "base/folders.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMostNarrow = std::int64_t{1} << 16U;

// Copies the tokenizer's files, so that the folder does not depend on others.
Status KeepTokenizer(const OpenedTokenizer& tokenizer, const std::string& to, TokenIndex& index) {
  for (const std::string& file : tokenizer.files) {
    const std::string name = fs::path(file).filename().string();
    PENSTOCK_TRY(const std::string content, ReadFile(file));
    PENSTOCK_TRY_STATUS(WriteFileAtomically((fs::path(to) / name).string(), content));
    index.tokenizer_files.push_back(name);
  }
  return {};
}

}  // namespace

Result<TokenWriter> TokenWriter::Create(const std::string& path, const OpenedTokenizer& tokenizer,
                                        std::uint64_t shard_tokens) {
  std::error_code error;
  fs::path folder = fs::path(path).lexically_normal();
  if (!folder.has_filename()) folder = folder.parent_path();  // "tokens/"
  if (fs::exists(folder, error)) {
    return InvalidArgument("{} exists already: remove it, or write to another folder", path);
  }
  PENSTOCK_TRY_STATUS(CreateFolders(folder.parent_path().string()));
  TokenWriter writer;
  PENSTOCK_TRY(writer.path_, FollowLink(folder.string()));
  const std::string temporary = fmt::format("{}.tmp-{}", writer.path_, getpid());
  if (!fs::create_directory(temporary, error)) {
    return InvalidArgument("cannot create {}: {}", temporary,
                           error ? error.message() : "it exists already");
  }
  writer.temporary_ = temporary;
  TokenIndex& index = writer.index_;
  index.vocabulary = tokenizer.tokenizer->vocabulary_size();
  index.bytes_per_token = index.vocabulary <= kMostNarrow ? 2 : 4;
  index.digest = tokenizer.digest;
  index.end_of_text = tokenizer.tokenizer->end_of_text();
  writer.shard_tokens_ = shard_tokens;
  PENSTOCK_TRY_STATUS(KeepTokenizer(tokenizer, temporary, index));
  PENSTOCK_TRY(writer.documents_, writer.OpenFile(kDocumentsFile));
  return writer;
}

TokenWriter::~TokenWriter() {
  std::error_code error;
  if (!temporary_.empty()) fs::remove_all(temporary_, error);
}

Result<TokenWriter::OwnFile> TokenWriter::OpenFile(const std::string& name) const {
  const std::string path = (fs::path(temporary_) / name).string();
  OwnFile file(std::fopen(path.c_str(), "wb"));
  if (file) return file;
  return MakeError(ErrorCode::kUnavailable, "cannot write {}: {}", path, std::strerror(errno));
}

Status TokenWriter::Write(std::FILE* file, const void* data, std::size_t bytes) const {
  if (std::fwrite(data, 1, bytes, file) == bytes) return {};
  return MakeError(ErrorCode::kUnavailable, "cannot write to {}: {}", temporary_,
                   std::strerror(errno));
}

Status TokenWriter::Add(std::span<const TokenId> document) {
  if (document.empty()) return {};
  if (!shard_) {
    index_.shards.push_back({fmt::format("tokens-{}.bin", index_.shards.size())});
    PENSTOCK_TRY(shard_, OpenFile(index_.shards.back().file));
  }
  if (index_.bytes_per_token == 2) {
    narrow_.assign(document.begin(), document.end());
    PENSTOCK_TRY_STATUS(Write(shard_.get(), narrow_.data(), 2 * narrow_.size()));
  } else {
    PENSTOCK_TRY_STATUS(Write(shard_.get(), document.data(), document.size_bytes()));
  }
  TokenShard& shard = index_.shards.back();
  shard.tokens += document.size();
  ++shard.documents;
  index_.tokens += document.size();
  ++index_.documents;
  PENSTOCK_TRY_STATUS(Write(documents_.get(), &index_.tokens, sizeof index_.tokens));
  return shard.tokens >= shard_tokens_ ? CloseShard() : Status();
}

Result<std::string> TokenWriter::Close(OwnFile& file, const std::string& name) const {
  if (std::fclose(file.release()) != 0) {
    return MakeError(ErrorCode::kUnavailable, "cannot write to {}: {}", temporary_,
                     std::strerror(errno));
  }
  PENSTOCK_TRY(const MappedFile content, MappedFile::Open((fs::path(temporary_) / name).string()));
  return NamedDigest(content.bytes());
}

Status TokenWriter::CloseShard() {
  PENSTOCK_TRY(index_.shards.back().digest, Close(shard_, index_.shards.back().file));
  return {};
}

Result<TokenIndex> TokenWriter::Finish() {
  if (index_.documents == 0) return InvalidArgument("there is no text to tokenize");
  if (shard_ != nullptr) PENSTOCK_TRY_STATUS(CloseShard());
  PENSTOCK_TRY(index_.documents_digest, Close(documents_, kDocumentsFile));
  PENSTOCK_TRY_STATUS(
      WriteFileAtomically((fs::path(temporary_) / kTokenIndexFile).string(), ToJson(index_)));
  std::error_code error;
  fs::rename(temporary_, path_, error);
  if (error) {
    return MakeError(ErrorCode::kUnavailable, "cannot rename {} to {}: {}", temporary_, path_,
                     error.message());
  }
  temporary_.clear();
  return index_;
}

}  // namespace penstock
