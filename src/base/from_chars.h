// std::from_chars for numbers, which libc++ lacks for double where it targets WebAssembly.
#pragma once

#include <charconv>

#ifdef __wasm__
#include <cerrno>
#include <cstdlib>
#include <string>
#include <type_traits>
#endif

namespace penstock {

// As std::from_chars.
template <class T>
std::from_chars_result FromChars(const char* first, const char* last, T& value) {
#ifdef __wasm__
  if constexpr (std::is_floating_point_v<T>) {
    // Unlike from_chars, strtod skips blanks and reads "+1" and "0x1".
    std::string text(first, last);
    const std::size_t sign = text.starts_with('-') ? 1 : 0;
    const bool is_number = text.size() > sign && text[sign] != '+' && text[sign] != '-' &&
                           static_cast<unsigned char>(text[sign]) > ' ';
    if (!is_number) return {first, std::errc::invalid_argument};
    if (text.size() > sign + 1 && (text[sign + 1] | 0x20) == 'x') text.resize(sign + 1);
    char* end = nullptr;
    errno = 0;
    const double read = std::strtod(text.c_str(), &end);
    const char* const stop = first + (end - text.c_str());
    if (stop == first) return {first, std::errc::invalid_argument};
    if (errno == ERANGE) return {stop, std::errc::result_out_of_range};
    value = static_cast<T>(read);
    return {stop, std::errc()};
  } else {
    return std::from_chars(first, last, value);
  }
#else
  return std::from_chars(first, last, value);
#endif
}

}  // namespace penstock
