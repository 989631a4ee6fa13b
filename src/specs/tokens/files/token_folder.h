// Token folders: tokenized documents on disk, one after another, for training.
//
//   index.json          the manifest, see TokenIndex
//   tokens-K.bin        shard K: token ids, 16 or 32 bits each, in the machine's byte order
//   documents.bin       the end of each document, as a 64-bit count of tokens from the start
//   tokenizer.json ...  the tokenizer's files
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "tokens/files/mapped_file.h"
#include "tokens/tokenizer.h"

namespace penstock {

inline constexpr const char* kTokenIndexFile = "index.json";
inline constexpr const char* kDocumentsFile = "documents.bin";

struct TokenShard {
  std::string file;
  std::uint64_t tokens = 0;
  std::uint64_t documents = 0;
  std::string digest = {};  // of the file
};

// Folders of earlier versions have no digests of files: they are then empty.
struct TokenIndex {
  int bytes_per_token = 2;  // 2 or 4
  std::string digest;       // of the tokenizer
  std::int64_t vocabulary = 0;
  std::optional<TokenId> end_of_text;        // ends each document
  std::vector<std::string> tokenizer_files;  // names in the folder; empty: bytes
  std::uint64_t tokens = 0;
  std::uint64_t documents = 0;
  std::vector<TokenShard> shards;
  std::string documents_digest;  // of kDocumentsFile
};

std::string ToJson(const TokenIndex& index);
// Errors: kInvalidArgument, one line without the file's name.
Result<TokenIndex> ParseTokenIndex(std::string_view json);

// Reads the index of a folder, but not its other files. Errors: kNotFound, or kInvalidArgument.
Result<TokenIndex> ReadTokenIndex(const std::string& path);
// Returns what OpenTokenizer opens.
std::string TokenizerOfTokens(const std::string& path, const TokenIndex& index);

// Whether the path is a folder with an index.
bool IsTokenFolder(const std::string& path);

// Immutable, so any thread may use it.
class TokenFolder {
 public:
  // Maps all files and reads them once, to check them. Errors: kNotFound, or kInvalidArgument if a
  // file does not have the size and the digest that the index states, or has an id outside of the
  // vocabulary.
  static Result<TokenFolder> Open(const std::string& path);

  const std::string& path() const { return path_; }
  const TokenIndex& index() const { return index_; }
  std::uint64_t size() const { return index_.tokens; }
  // Returns the end of each document, in tokens.
  std::span<const std::uint64_t> document_ends() const { return documents_.As<std::uint64_t>(); }
  // Returns what the user should know: whether damage could go unnoticed. May be empty.
  std::string note() const;

  // Reads tokens [begin, begin + to.size()). Requires: the range is inside of the folder. Throws
  // std::runtime_error if a file was overwritten since Open and has ids outside of the vocabulary.
  void Read(std::uint64_t begin, std::span<std::int64_t> to) const;

 private:
  explicit TokenFolder(MappedFile documents) : documents_(std::move(documents)) {}

  std::string path_;
  TokenIndex index_;
  MappedFile documents_;
  std::vector<MappedFile> shards_;
  std::vector<std::uint64_t> begins_;  // of the shards
};

}  // namespace penstock
