// How layers are divided into pipeline stages.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"

namespace penstock {

// Returns the number of layers of each stage: `counts`, or as even as possible with longer stages
// first if `counts` is empty. Errors: kInvalidArgument for fewer layers than stages, or counts that
// do not add up to `layers`.
Result<std::vector<std::int64_t>> DivideLayers(std::int64_t layers, int stages,
                                               std::span<const std::int64_t> counts = {});

}  // namespace penstock
