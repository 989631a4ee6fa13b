// Reports the progress of a run to its user.
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <utility>

namespace penstock {

// Writes to `out`. Ignores a failure: a run does not end because nobody reads its progress any
// more, or because the disk for it is full.
template <class... Args>
void Log(std::FILE* out, fmt::format_string<Args...> format, Args&&... args) {
  const std::string text = fmt::format(format, std::forward<Args>(args)...);
  std::fwrite(text.data(), 1, text.size(), out);
}

}  // namespace penstock
