// What Megatron-LM keeps of a microbatch and what it needs while it computes, with its own kernels
// and with TransformerEngine's: tensors that modules save for their backward.
//
// Sources: github.com/NVIDIA/Megatron-LM and TransformerEngine of 2026, files named below.
#pragma once

#include <cstdint>

#include "cost_model/kept_tensors.h"
#include "cost_model/microbatch.h"
#include "model_spec/model_shape.h"

namespace penstock {

// --transformer-impl of Megatron-LM.
enum class MegatronKernels { kLocal, kTransformerEngine };

// Releases of Megatron-LM between which memory differs. The first is in NVIDIA's container 24.01,
// which Megatron-LM's long-term tests ran until 2025.
enum class MegatronRelease { kContainer2401, kUntilOctober2025, kNewest };
MegatronRelease ReleaseOf(const Profile& profile);

// Returns the attention kernel that runs if the user leaves the choice to the framework.
AttentionKernel MegatronAttention(const Profile& profile, MegatronKernels kernels);

// A layer of any kind, with its norms.
KeptTensors MegatronKeptByLayer(const ModelShape& shape, std::int64_t layer,
                                const Microbatch& batch, MegatronKernels kernels);
// A layer that predicts a further token, without its head and loss.
KeptTensors MegatronKeptByPredictor(const ModelShape& shape, const Microbatch& batch,
                                    MegatronKernels kernels);
KeptTensors MegatronKeptByEmbedding(const ModelShape& shape, const Microbatch& batch);
KeptTensors MegatronKeptByFinalNorm(const ModelShape& shape, const Microbatch& batch);
KeptTensors MegatronKeptByLogits(const ModelShape& shape, const Microbatch& batch);

// Bytes that the backward of a layer needs in addition to all that is kept.
double MegatronLayerTransient(const ModelShape& shape, std::int64_t layer, const Microbatch& batch,
                              MegatronKernels kernels);
// Bytes that the loss needs in addition to what it keeps.
double MegatronLossTransient(const ModelShape& shape, const Microbatch& batch);

// The bytes of attention scores of one layer, if a kernel stores them.
double MegatronScoreElements(const ModelShape& shape, const Microbatch& batch);

}  // namespace penstock
