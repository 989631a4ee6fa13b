// TokenSpan: consecutive tokens in memory, as bytes or as 32-bit ids.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace penstock {

class TokenSpan {
 public:
  TokenSpan() = default;
  TokenSpan(std::span<const std::uint8_t> bytes) : bytes_(bytes.data()), size_(bytes.size()) {}
  TokenSpan(const std::vector<std::uint8_t>& bytes) : TokenSpan(std::span(bytes)) {}
  TokenSpan(std::span<const std::uint32_t> ids) : ids_(ids.data()), size_(ids.size()) {}
  TokenSpan(const std::vector<std::uint32_t>& ids) : TokenSpan(std::span(ids)) {}

  std::size_t size() const { return size_; }
  TokenSpan subspan(std::size_t begin, std::size_t count) const {
    TokenSpan part = *this;
    if (bytes_ != nullptr) part.bytes_ += begin;
    if (ids_ != nullptr) part.ids_ += begin;
    part.size_ = count;
    return part;
  }
  TokenSpan subspan(std::size_t begin) const { return subspan(begin, size_ - begin); }
  TokenSpan first(std::size_t count) const { return subspan(0, count); }

  // `to` needs room for size() tokens.
  void CopyTo(std::int64_t* to) const {
    if (bytes_ != nullptr) std::copy_n(bytes_, size_, to);
    if (ids_ != nullptr) std::copy_n(ids_, size_, to);
  }

 private:
  const std::uint8_t* bytes_ = nullptr;  // one of the two
  const std::uint32_t* ids_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace penstock
