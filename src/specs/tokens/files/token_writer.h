// TokenWriter: writes a token folder (token_folder.h).
#pragma once

#include <cstdio>
#include <memory>
#include <span>
#include <string>

#include "base/result.h"
#include "tokens/files/token_folder.h"
#include "tokens/kinds/open_tokenizer.h"

namespace penstock {

// Writes to a temporary folder next to `path`, which Finish renames: the folder is there completely
// or not at all. Threads: one at a time.
class TokenWriter {
 public:
  // A shard ends with the document that reaches `shard_tokens`. Errors: kInvalidArgument if `path`
  // exists or cannot be created.
  static Result<TokenWriter> Create(const std::string& path, const OpenedTokenizer& tokenizer,
                                    std::uint64_t shard_tokens);
  // Removes the temporary folder, unless Finish succeeded.
  ~TokenWriter();
  TokenWriter(TokenWriter&& other) noexcept = default;

  // Errors: kUnavailable if a file cannot be written.
  Status Add(std::span<const TokenId> document);
  // Writes the index. Errors: kUnavailable, or kInvalidArgument if there is no document.
  Result<TokenIndex> Finish();

 private:
  struct CloseFile {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  using OwnFile = std::unique_ptr<std::FILE, CloseFile>;

  TokenWriter() = default;
  Result<OwnFile> OpenFile(const std::string& name) const;
  // Closes a file and returns its digest.
  Result<std::string> Close(OwnFile& file, const std::string& name) const;
  Status CloseShard();
  Status Write(std::FILE* file, const void* data, std::size_t bytes) const;

  std::string path_, temporary_;
  TokenIndex index_;
  std::uint64_t shard_tokens_ = 0;
  OwnFile shard_, documents_;
  std::vector<std::uint16_t> narrow_;
};

}  // namespace penstock
