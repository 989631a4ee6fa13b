// TokenSet: the tokens of one dataset, divided into training documents and held-out ones.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "tokens/files/token_folder.h"

namespace penstock {

// Immutable, so any thread may use it.
class TokenSet {
 public:
  // Opens a folder. Holds out whole documents, chosen at random but the same in every run: about
  // `held_out` of all tokens, at most kMostHeldOut, at least one document on each side. Errors:
  // kInvalidArgument if there are fewer than two documents.
  static Result<TokenSet> Open(const std::string& path, double held_out);
  // Takes tokens in memory, which are divided already.
  TokenSet(std::vector<TokenId> train, std::vector<TokenId> held_out);

  static constexpr std::uint64_t kMostHeldOut = std::uint64_t{4} << 20U;

  std::uint64_t size() const { return size_; }  // tokens to train on
  const std::vector<TokenId>& held_out() const { return held_out_; }
  // Identifies the tokens to train on, wherever they are stored.
  const std::string& digest() const { return digest_; }
  const TokenFolder* folder() const { return folder_.get(); }  // null in memory

  // Reads the tokens to train on from `begin` on, as if they were one text. Requires: begin +
  // to.size() <= size().
  void Read(std::uint64_t begin, std::span<std::int64_t> to) const;

 private:
  // Consecutive training documents.
  struct Range {
    std::uint64_t begin = 0;      // among the tokens to train on
    std::uint64_t in_folder = 0;  // in the folder
  };

  TokenSet() = default;
  void HoldOutDocuments(double share);

  std::shared_ptr<const TokenFolder> folder_;
  std::vector<Range> ranges_;
  std::vector<TokenId> train_;  // in memory
  std::vector<TokenId> held_out_;
  std::uint64_t size_ = 0;
  std::string digest_;
};

}  // namespace penstock
