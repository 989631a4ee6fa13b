// Conversion of rows of numbers between bf16 and fp32, with the processor's vector instructions.
#pragma once

#include <cstdint>

namespace penstock {

// bf16 numbers by their bits. No function allocates; any thread may call them.
void WidenBf16(const std::uint16_t* from, float* to, std::int64_t count);
// to = round(scale from), to nearest even; NaN stays NaN.
void RoundToBf16(const float* from, float scale, std::uint16_t* to, std::int64_t count);
// to = round(scale from + added_scale added), rounded once. `added` holds one number every
// `stride`.
void AddAndRoundToBf16(const float* from, float scale, const std::uint16_t* added,
                       std::int64_t stride, float added_scale, std::uint16_t* to,
                       std::int64_t count);

}  // namespace penstock
