// What the kernels of TransformerEngine and Megatron-Core reach and cost.
//
// All but those marked "set" are chosen by bench/constants.py, shared by all rows: NVIDIA's
// performance pages for Megatron-Bridge 25.09 to 26.08, NeMo 24.07 and AutoModel, and its
// dgxc-benchmarking 25.04 and 25.05, with equal weights of models and devices, and a weak pull to
// what one would guess without rows. docs/measured.md says how they predict models and sources that
// choose none.
#pragma once

namespace penstock::transformer_engine {

// Parts of a device's peak that large matmuls reach, by format.
inline constexpr double kMatmulBf16 = 0.75;
inline constexpr double kMatmulFp8 = 0.83;  // one scale per tensor
inline constexpr double kMatmulBlockwise = 0.65;
inline constexpr double kMatmulMxfp8 = 0.66;
inline constexpr double kMatmulNvfp4 = 0.6;
// Length of a matmul's inner dimension whose start and end take as long as its products, at the
// peak of bf16.
inline constexpr double kMatmulStart = 470;
// Width of an expert on a rank at which grouped matmuls have half of the efficiency of a single
// one; likewise with the experts' kernels fused (CuteDSL's grouped MLP).
inline constexpr double kGroupedWidth = 250, kGroupedWidthFused = 120;
// Part of the traffic of weights and their gradients that is not hidden.
inline constexpr double kWeightTraffic = 0.77;
// Part of the memory bandwidth.
inline constexpr double kMemory = 0.47;

// Parts of bf16's peak that attention reaches on long sequences; FlashAttention-3 (Shah et al.
// 2024) has 0.6 to 0.75.
inline constexpr double kAttentionForward = 0.67, kAttentionBackward = 0.55;
// Software before 2025 computes attention by FlashAttention-2 on Hopper and later. It reaches 0.35
// of an H100's peak (Shah et al. 2024, section 1); the backward's part is set.
inline constexpr double kFlash2Forward = 0.35, kFlash2Backward = 0.3;
// Tokens of a call, which is one step of a ring, that take as long as its start and end.
inline constexpr double kAttentionStart = 930;
inline constexpr double kSmallHeads = 0.6;    // set: relative, of heads below 128
inline constexpr double kFp8Attention = 1.5;  // speedup of 8 bits
// Part of bf16's peak: scans of Mamba-2 and of delta nets, with their convolutions.
inline constexpr double kScan = 0.022;

// Quantization reads and writes each input and gradient in two orders; factors of that traffic.
inline constexpr double kQuantize = 0.83;
inline constexpr double kQuantizeNvfp4 = 1.5;  // Hadamard transform, scales of two levels
inline constexpr double kQuantizeRows = 4.1, kQuantizeRowsFused = 1.7;  // rows of experts

// Reads and writes of all elements of a tensor, F and I together.
inline constexpr double kHiddenPasses = 18;      // hidden states, per part of a block
inline constexpr double kHeadPasses = 5;         // queries and keys: positions, norms, transposes
inline constexpr double kAttentionPasses = 2.7;  // queries, keys, values and outputs
inline constexpr double kGatePasses = 9.3;       // SiLU and product of a dense layer
inline constexpr double kActivationPasses = 5;   // set: an activation without a gate
inline constexpr double kRowPasses = 7.2, kRowPassesFused = 5.1;  // rows of experts, in their order
inline constexpr double kAllToAllPasses = 24;  // more of them with the all-to-all dispatcher
// More of them to and from rows that are padded for the blocks of scales. HybridEP pads as it
// sends.
inline constexpr double kPaddingPasses = 13;
inline constexpr double kExpertGatePasses = 4.5, kExpertGatePassesFused = 3.9;
inline constexpr double kExpertActivationPasses = 19;  // the square of ReLU, not fused
inline constexpr double kExpertBiasPasses = 80;        // biases of experts, not fused
inline constexpr double kLogitPasses = 6;              // set: of the loss
// Set: an adapter's matmuls have too few columns to count, but they read the layer's input, write
// an output that is added to the layer's, read the gradient twice and the input twice again, and
// write a gradient of the input that is added, too.
inline constexpr double kAdapterInputs = 1, kAdapterOutputs = 4;                  // of F
inline constexpr double kAdapterInputGradients = 6, kAdapterOutputGradients = 2;  // of I

// Parts of the bandwidth of links and of the network.
inline constexpr double kLink = 0.8, kNetwork = 0.9;
inline constexpr double kExpertLink = 0.94, kExpertNetwork = 0.87;
// Further factors of the all-to-alls of NCCL, in which every rank sends each token as often as it
// has experts for it.
inline constexpr double kAllToAllLink = 0.84, kAllToAllNetwork = 0.99;
// Part of the bandwidth of links that all-to-alls of NCCL reach between the nodes of a rack in
// software before September 2025, by DeepSeek-V3 and Grok-1 on GB200. Later rows have no such gap.
inline constexpr double kAllToAllRack = 0.1;
// Parts of messages that compute does not hide.
inline constexpr double kTensorExposed = 0.73;  // 1 in NVFP4, whose recipes do not overlap them
inline constexpr double kContextExposed = 0.45;
inline constexpr double kExpertExposed = 0.41;     // of overlapped exchanges; 1 of others
inline constexpr double kGradientsExposed = 0.64;  // sums of gradients
inline constexpr double kShardsExposed = 0.51;     // of FSDP
inline constexpr double kOffloadExposed = 0.27;    // of activations to and from the host

// Seconds of the host per layer and microbatch, F, I and W together. W, which only has matmuls, has
// this part of them.
inline constexpr double kHostWeight = 0.2;    // set
inline constexpr double kHostPart = 0.53e-3;  // attention, a dense part or a scan
// Launches go with linear layers: latent attention has five, others two.
inline constexpr double kHostLatent = 2.5;     // set: of that
inline constexpr double kHostExperts = 6e-3;   // a part with experts
inline constexpr double kHostExpert = 140e-6;  // of these, per expert of the rank, if not fused
inline constexpr double kHostCounts = 1e-3;    // of these, the wait for the number of rows
inline constexpr double kHostDropping = 0.5;   // set: of these, without that wait
inline constexpr double kHostPartialGraphs = 0.91;  // of these, that partial CUDA graphs leave

// Bytes that the optimizer moves per parameter. Set: gradient, master and moments, and weight.
inline constexpr double kBytesPerStep = 30;

}  // namespace penstock::transformer_engine
