// What the kernels of torch reach and cost.
//
// Those marked "rows" were chosen, as round numbers, from 19 step times of torchtitan that its
// repository publishes (benchmarks/*.md; docs/measured.md says how far each group of rows is off if
// the others choose them). 17 of the rows ran on H100s with a limit of 500 W, so devices at 700 W
// may be up to 8% faster than predicted.
#pragma once

#include "cost_model/implementations/transformer_engine_constants.h"

namespace penstock::torch_constants {

// Parts of a device's peak that large matmuls of cuBLAS reach. Rows.
inline constexpr double kMatmulBf16 = 0.49, kMatmulFp8 = 0.50;
// Length of a matmul's inner dimension whose start and end take as long as its products, at the
// peak of bf16. Rows, which determine only that it is below 200.
inline constexpr double kMatmulStart = 50;
// Launches by ATen's dispatcher and autograd. As assumed: the rows do not test them.
inline constexpr double kDeviceLaunch = 1e-6, kHostLaunch = 8e-6;

// Parts of bf16's peak that FlashAttention-2 reaches: 72% and 63% of an A100's (Dao 2023, section
// 4). On later devices it uses the instructions of an A100: 32% and 26%, by rows of 32,768 tokens.
inline constexpr double kFlashForward = 0.72, kFlashBackward = 0.63;
inline constexpr double kFlashForwardHopper = 0.32, kFlashBackwardHopper = 0.26;
// cuDNN's, relative to FlashAttention-2 there: 1.6 (Shah et al., FlashAttention-3, 2024, figure 5).
inline constexpr double kFusedAttention = 1.6;
// A step of a ring with half of the scores, its fp32 sums of results and the wait for its keys,
// relative to one kernel for all tokens. Rows of 65,536 to 262,144 tokens.
inline constexpr double kRing = 0.68;

// Bytes that move per value that a float8 matmul reads: the maximum, the cast, and the copy in the
// other order of dimensions. F and I cast their inputs, W both of its. Rows.
inline constexpr double kCast = 4.5, kCastWeight = 3.6;

// Part of FSDP's messages that compute does not hide. Rows of 8, 32, 64 and 128 devices.
inline constexpr double kShardsExposed = 0.25;
// Part of the messages of `tensor` that matmuls by pieces do not hide (_micro_pipeline_tp). Rows.
inline constexpr double kAsyncExposed = 0.4;

// Passes over the rows of experts for their order, padding and weights, and seconds of the host per
// layer with experts and direction, which waits for the number of rows that each rank gets before
// it can launch the exchange: as with transformer-engine, because no row of torch tests them.
inline constexpr double kRowPasses = transformer_engine::kRowPasses;
inline constexpr double kRowPassesEager = 1.5 * kRowPasses;
inline constexpr double kHostExperts =
    (transformer_engine::kHostExperts + transformer_engine::kHostCounts) *
    (1 - transformer_engine::kHostWeight) / 2;

}  // namespace penstock::torch_constants
