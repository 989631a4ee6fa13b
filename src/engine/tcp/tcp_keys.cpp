#include "tcp/tcp_keys.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "base/result.h"

namespace penstock {
namespace {

unsigned char* Data(auto& bytes) { return reinterpret_cast<unsigned char*>(bytes.data()); }
const unsigned char* Data(const auto& bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}

EVP_CIPHER_CTX* Cipher(void* context) { return static_cast<EVP_CIPHER_CTX*>(context); }

}  // namespace

TcpDigest RandomBytes() {
  TcpDigest bytes;
  PENSTOCK_CHECK(RAND_bytes(Data(bytes), static_cast<int>(bytes.size())) == 1);
  return bytes;
}

TcpDigest KeyedDigest(std::string_view key, std::initializer_list<std::string_view> texts) {
  std::string all;
  for (const std::string_view text : texts) all += text;
  TcpDigest digest;
  PENSTOCK_CHECK(HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), Data(all), all.size(),
                      Data(digest), nullptr) != nullptr);
  return digest;
}

bool AreEqual(const TcpDigest& a, const TcpDigest& b) {
  return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

void BlockTagger::Freer::operator()(void* context) const { EVP_CIPHER_CTX_free(Cipher(context)); }

BlockTagger::BlockTagger(const TcpDigest& key) : context_(EVP_CIPHER_CTX_new()) {
  PENSTOCK_CHECK(EVP_EncryptInit_ex(Cipher(context_.get()), EVP_aes_256_gcm(), nullptr, Data(key),
                                    nullptr) == 1);
  StartBlock();
}

void BlockTagger::StartBlock() {
  std::array<std::byte, 12> number{};
  std::memcpy(number.data(), &block_, sizeof(block_));
  ++block_;
  PENSTOCK_CHECK(
      EVP_EncryptInit_ex(Cipher(context_.get()), nullptr, nullptr, nullptr, Data(number)) == 1);
}

void BlockTagger::Add(const void* data, std::size_t bytes) {
  constexpr std::size_t kMost = std::size_t{1} << 30;  // OpenSSL takes an int
  const auto* at = static_cast<const unsigned char*>(data);
  while (bytes > 0) {
    const std::size_t next = std::min(bytes, kMost);
    int unused = 0;
    PENSTOCK_CHECK(EVP_EncryptUpdate(Cipher(context_.get()), nullptr, &unused, at,
                                     static_cast<int>(next)) == 1);
    at += next;
    bytes -= next;
  }
}

BlockTagger::Tag BlockTagger::Finish() {
  Tag tag;
  int unused = 0;
  PENSTOCK_CHECK(EVP_EncryptFinal_ex(Cipher(context_.get()), Data(tag), &unused) == 1);
  PENSTOCK_CHECK(EVP_CIPHER_CTX_ctrl(Cipher(context_.get()), EVP_CTRL_GCM_GET_TAG,
                                     static_cast<int>(tag.size()), tag.data()) == 1);
  StartBlock();
  return tag;
}

bool BlockTagger::Matches(const Tag& tag) {
  const Tag own = Finish();
  return CRYPTO_memcmp(own.data(), tag.data(), tag.size()) == 0;
}

}  // namespace penstock
