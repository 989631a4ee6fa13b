// What autograd keeps of torchtitan's models, and what a rank holds besides.
#pragma once

#include "cost_model/implementations/torch_list.h"
#include "cost_model/kept_tensors.h"

namespace penstock {

// Tensors with kNotKeptByOp are those that per-op recomputation computes again.
KeptTensors TorchKeptByLayer(const ModelShape& shape, std::int64_t layer, const Microbatch& batch,
                             TorchMode mode);
// Bytes of gradients that the backward of a layer needs in addition.
double TorchLayerTransient(const ModelShape& shape, std::int64_t layer, const Microbatch& batch);

// Whether torch.compile makes one pass over the logits of the loss.
bool HasCompiledLoss(const Profile& profile, TorchMode mode);
KeptTensors TorchKeptByLogits(const ModelShape& shape, const Microbatch& batch, TorchMode mode);
// Bytes that the loss needs in addition to what it keeps.
double TorchLossTransient(const ModelShape& shape, const Microbatch& batch, TorchMode mode);

RankOverhead TorchOverhead(const ModelShape& shape, const Microbatch& batch,
                           const RankPlace& place);

}  // namespace penstock
