// Converts arrays between bf16 and fp32 with the processor's vector instructions.
#pragma once

#include <cstdint>

namespace penstock {

// bf16 numbers are passed as their bits. Threads: any.

// Converts bf16 to fp32.
void WidenBf16(const std::uint16_t* from, float* to, std::int64_t count);
// to = round(scale * from), to nearest even. NaN stays NaN.
void RoundToBf16(const float* from, float scale, std::uint16_t* to, std::int64_t count);
// to = round(scale * from + added_scale * added), rounded once. `added` has stride `stride`.
void AddAndRoundToBf16(const float* from, float scale, const std::uint16_t* added,
                       std::int64_t stride, float added_scale, std::uint16_t* to,
                       std::int64_t count);

}  // namespace penstock
