// The names that other frameworks and tools give to our options.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace penstock {

// Returns the option of `app`, or the key of its configuration, that Megatron-LM, DeepSpeed,
// torchtitan, transformers or their users call `name` ("--tensor-model-parallel-size"); an empty
// text if this command has nothing for it, and nothing for an unknown name.
std::optional<std::string> OurNameOf(std::string_view name, const CLI::App& app);

}  // namespace penstock
