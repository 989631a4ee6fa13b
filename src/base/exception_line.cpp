#include "base/exception_line.h"

#include <fmt/format.h>

#include <charconv>
#include <new>
#include <string_view>

#include "base/units.h"

namespace penstock {
namespace {

// Of libtorch's allocator, whose exception has no type of its own.
constexpr std::string_view kTorchOutOfMemory = "not enough memory: you tried to allocate ";

}  // namespace

std::string ExceptionLine(const std::exception& error) {
  constexpr std::string_view kRemedy =
      "give a smaller model, batch or sequence, or a schedule that holds less";
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) {
    return fmt::format("out of memory: {}", kRemedy);
  }
  const std::string_view text = error.what();
  if (const std::size_t found = text.find(kTorchOutOfMemory); found != std::string_view::npos) {
    const std::string_view number = text.substr(found + kTorchOutOfMemory.size());
    std::int64_t bytes = 0;
    std::from_chars(number.data(), number.data() + number.size(), bytes);
    return fmt::format("out of memory: {} more cannot be allocated: {}", FormatBytes(bytes),
                       kRemedy);
  }
  return std::string(text.substr(0, text.find('\n')));
}

}  // namespace penstock
