// Which layers compute their forward pass again in the backward pass instead of keeping its
// tensors, as Megatron-LM divides them (Korthikanti et al. 2022, section 5).
#pragma once

#include <cstdint>
#include <string_view>

#include "base/result.h"

namespace penstock {

struct Recompute {
  enum class Method {
    kNone,
    kUniform,    // all layers; `layers` of them keep one input
    kBlock,      // the first `layers` layers of each stage
    kSelective,  // `modules` of all layers
  };
  Method method = Method::kNone;
  std::int64_t layers = 1;
  int modules = 0;  // a sum of Modules (layer_work.h)

  // Whether a whole layer is computed again, by its position in its stage.
  bool covers(std::int64_t position) const {
    return method == Method::kUniform || (method == Method::kBlock && position < layers);
  }
  // The layers that keep one input together.
  std::int64_t checkpoint_layers() const { return method == Method::kUniform ? layers : 1; }
};

inline constexpr const char* kRecomputeForms =
    "none, full, full:N (N layers keep one input), block:N (the first N layers of each stage), or "
    "selective:MODULE,... of norm, core_attn, mla_up_proj, mlp, act, moe, shared_experts, and op "
    "with "
    "implementations torch and torch-compile (torchtitan's selective)";

// `by_op`: whether the implementation recomputes per op, which is its `selective`; otherwise that
// is the core of attention. Errors: kInvalidArgument.
Result<Recompute> ParseRecompute(std::string_view text, bool by_op = false);

// Returns the sum of Modules whose tensors are in the memory of the host between F and B, by the
// names of Megatron-LM's offload_modules, with commas between them. Errors: kInvalidArgument.
Result<int> ParseOffloadedModules(std::string_view text);

}  // namespace penstock
