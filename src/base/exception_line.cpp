#include "base/exception_line.h"

#include <fmt/format.h>

#include <charconv>
#include <new>
#include <string_view>

#include "base/first_line.h"
#include "base/units.h"

namespace penstock {
namespace {

// In both messages of libtorch's allocator, whose exception has no type of its own: "not enough
// memory: ..." and "can't allocate memory: ...".
constexpr std::string_view kTorchOutOfMemory = "memory: you tried to allocate ";

}  // namespace

std::string ExceptionLine(const std::exception& error) {
  constexpr std::string_view kRemedy =
      "use a smaller model, batch or sequence, or a schedule that needs less memory";
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) {
    return fmt::format("out of memory; {}", kRemedy);
  }
  const std::string_view text = error.what();
  if (const std::size_t found = text.find(kTorchOutOfMemory); found != std::string_view::npos) {
    const std::string_view number = text.substr(found + kTorchOutOfMemory.size());
    std::int64_t bytes = 0;
    std::from_chars(number.data(), number.data() + number.size(), bytes);
    return fmt::format("out of memory: cannot allocate {} more; {}", FormatBytes(bytes), kRemedy);
  }
  return FirstLine(text);
}

}  // namespace penstock
