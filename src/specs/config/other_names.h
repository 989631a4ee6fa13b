// The names that other frameworks and tools give to our options.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace penstock {

// Returns what Megatron-LM, DeepSpeed, torchtitan, transformers or their users call `name`
// ("--tensor-model-parallel-size", "tensor_parallel"): the first, best name that `has` accepts, a
// parameter ("tensor", "pass recompute") or a key of a configuration ("parallel.tensor="). Returns
// an empty text if `has` accepts none, and nothing for an unknown name. `has` gets a parameter
// without the value that may follow it, or a key with its '='.
std::optional<std::string> OurNameOf(std::string_view name,
                                     const std::function<bool(std::string_view)>& has);

// Returns what `penstock train` has in place of something that other frameworks call `name`
// ("fp16", "--lora-rank") and it lacks: "it trains in f32 or bf16 (precision)". Empty for other
// names.
std::string_view InPlaceOf(std::string_view name);

}  // namespace penstock
