// Refuses a model that cannot fit in memory before it is built.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/result.h"
#include "base/system/available_memory.h"
#include "model_spec/model_config.h"

namespace penstock {

// Returns the memory that a configuration allows (max_memory): "auto", "none" or an amount.
// Errors: kInvalidArgument.
Result<AvailableMemory> AllowedMemory(const std::string& limit);

// FormatBytes for values beyond the range of an integer.
std::string BytesText(double bytes);

// Checks that the parameters and tables of these stages, and what one forward of `tokens` tokens
// keeps at least, fit in memory. Allocates none of it. Errors: kInvalidArgument, with both amounts
// and what to change.
Status CheckModelFits(const ModelConfig& config, std::span<const LayerRange> stages,
                      std::int64_t tokens, const std::string& limit = "auto");

}  // namespace penstock
