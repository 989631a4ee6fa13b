// What proves that bytes come from a process of the run: codes under a secret key, by OpenSSL.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string_view>

namespace penstock {

using TcpDigest = std::array<std::byte, 32>;

// The bytes of a digest or of a block without padding.
template <class Block>
std::string_view BytesOf(const Block& block) {
  return {reinterpret_cast<const char*>(&block), sizeof(block)};
}

// Bytes that nobody can predict.
TcpDigest RandomBytes();
// HMAC-SHA256 of the texts, which have lengths that their readers know.
TcpDigest KeyedDigest(std::string_view key, std::initializer_list<std::string_view> texts);
// Takes the same time whatever the digests are.
bool AreEqual(const TcpDigest& a, const TcpDigest& b);

// Tags the blocks of one direction of a connection in order, by AES-256-GMAC with the number of the
// block. So a block that was changed, repeated, left out or sent by somebody else has another tag.
// One thread at a time.
class BlockTagger {
 public:
  using Tag = std::array<std::byte, 16>;

  explicit BlockTagger(const TcpDigest& key);

  // A block is what is added before Finish.
  void Add(const void* data, std::size_t bytes);
  Tag Finish();
  // Finishes the block. Returns whether this is its tag.
  bool Matches(const Tag& tag);

 private:
  void StartBlock();

  struct Freer {
    void operator()(void* context) const;
  };
  std::unique_ptr<void, Freer> context_;
  std::uint64_t block_ = 0;
};

}  // namespace penstock
