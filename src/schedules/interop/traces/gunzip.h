// Unpacks files that gzip compressed.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/result.h"

namespace penstock {

// Whether the bytes begin with gzip's magic number.
bool IsGzip(std::string_view bytes);

// Returns the content. Errors: kInvalidArgument if the bytes are damaged or incomplete, or the
// content is larger than `most` bytes.
Result<std::string> Gunzip(std::string_view bytes, std::size_t most);

}  // namespace penstock
