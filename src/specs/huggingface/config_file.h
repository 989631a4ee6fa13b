// config.json, the configuration of a model in Hugging Face's format, read as the transformers
// package reads it. Errors are kInvalidArgument, in one line that begins with the key.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "base/result.h"
#include "huggingface/config_class.h"

namespace penstock {

inline constexpr FileLimit kConfigFile{std::size_t{1} << 20, "config.json"};

struct ConfigFile {
  std::string model_type;
  const ConfigClass* type = nullptr;  // null for a model_type that no class here has
  // The keys of the file under their own names instead of aliases. With a class also all keys on
  // which the model depends, with their defaults where the file lacks them.
  nlohmann::json values;
  std::vector<std::string> unknown;  // keys that the class does not know
};

// Parses the text of a config.json. Refuses values of a wrong type or that no model of this type
// has here.
Result<ConfigFile> ParseConfigFile(std::string_view text);

// Returns the number of first layers without experts. Refuses other choices of such layers than
// the first ones. Requires: the values of a ConfigFile whose class has mlp_only_layers.
Result<std::int64_t> LeadingDenseLayers(const nlohmann::json& values);

// Returns a file's rope_parameters, in any form, in their newer form: rope_type, which is default,
// linear, llama3 or yarn; rope_theta; and all keys of this type, with
// attention_factor, mscale and mscale_all_dim 0 where they are not used. Adds keys that have no
// effect to `file.unknown`. Requires: a class with rotary positions.
Result<nlohmann::json> RopeParametersOf(ConfigFile& file);

// Prints a line that names the unknown keys, if there are any, to stderr, once per process. `path`
// is the file's. Threads: any.
void ReportUnknownKeys(const ConfigFile& file, std::string_view path);

}  // namespace penstock
