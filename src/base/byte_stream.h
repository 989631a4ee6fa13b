// Plain values and text as bytes, to be read by another process of the same program on a machine
// with the same byte order.
#pragma once

#include <concepts>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/result.h"

namespace penstock {

template <class T>
concept PlainValue = std::is_trivially_copyable_v<T> && !std::is_pointer_v<T>;

class ByteWriter {
 public:
  template <PlainValue T>
  void Put(const T& value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(T));
  }
  template <PlainValue T>
  void PutAll(std::span<const T> values) {
    Put(static_cast<std::uint64_t>(values.size()));
    bytes_.append(reinterpret_cast<const char*>(values.data()), values.size_bytes());
  }
  void PutText(std::string_view text) { PutAll(std::span(text.data(), text.size())); }

  const std::string& bytes() const { return bytes_; }
  std::string Take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

// Reads in the order of writing. Throws InternalError where the bytes end before: both sides are
// the same program.
class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : left_(bytes) {}

  template <PlainValue T>
  T Get() {
    T value;
    Copy(&value, sizeof(T));
    return value;
  }
  template <PlainValue T>
  std::vector<T> GetAll() {
    const auto count = Get<std::uint64_t>();
    PENSTOCK_CHECK(count <= left_.size() / sizeof(T), "{} values", count);
    std::vector<T> values(count);
    Copy(values.data(), count * sizeof(T));
    return values;
  }
  std::string GetText() {
    const std::vector<char> text = GetAll<char>();
    return {text.begin(), text.end()};
  }
  bool at_end() const { return left_.empty(); }

 private:
  void Copy(void* to, std::size_t bytes) {
    PENSTOCK_CHECK(bytes <= left_.size(), "{} bytes of {}", bytes, left_.size());
    if (bytes > 0) std::memcpy(to, left_.data(), bytes);
    left_.remove_prefix(bytes);
  }

  std::string_view left_;
};

}  // namespace penstock
