// The names that other frameworks and tools give to our options.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace penstock {

// One of our names for what others call by another one.
struct OurName {
  std::string_view option;  // "--tensor"; may be followed by the value that the name means
  std::string_view key;     // of a training configuration: "parallel.tensor="
};

// Returns the first name that `has` accepts for what Megatron-LM, DeepSpeed, torchtitan,
// transformers or their users call `name` ("--tensor-model-parallel-size", "tensor_parallel"), best
// first. Returns an empty text if `has` accepts none, and nothing for an unknown name. `has` gets
// an option without the value that may follow it, or a key with its '='.
std::optional<std::string> OurNameOf(std::string_view name,
                                     const std::function<bool(std::string_view)>& has);

// Returns what `penstock train` has in place of something that other frameworks call `name`
// ("fp16", "--lora-rank") and it lacks: "it trains in f32 or bf16 (precision)". Empty for other
// names.
std::string_view InPlaceOf(std::string_view name);

}  // namespace penstock
