// The configuration classes of Hugging Face's transformers package: the keys of config.json that
// each knows, their defaults, and which values a model of ours can have.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace penstock {

enum class KeyKind : std::uint8_t {
  kWhole,   // a whole number of at least `least`
  kNumber,  // finite
  kFlag,
  kText,
  kAny,  // read with other keys
  kOnly  // no other value than the default is supported
};

struct ClassKey {
  std::string_view name;
  KeyKind kind;
  std::string_view otherwise;  // the default, as JSON
  bool may_be_null = false;
  std::int64_t least = 1;
  bool in_class = true;  // else a key that only the files of the model's authors have
};

struct ConfigClass {
  std::string_view model_type;  // "llama"
  std::string_view name;        // "LlamaConfig"
  std::vector<ClassKey> keys;   // on which the model depends
  // Other keys of the class, which change neither weights nor what is computed from them.
  std::string_view without_effect;
  // Other names of keys. Where a file has both, the alias counts.
  std::vector<std::pair<std::string_view, std::string_view>> aliases = {};
  double rope_theta = 0;  // the default; 0 for models without rotary positions
  // Whether the class refuses a hidden_size that num_attention_heads does not divide.
  bool heads_divide_size = false;
  // Whether keys and values have as many heads as queries, and rotary ones a size of their own.
  bool is_latent = false;
};

const std::vector<ConfigClass>& ConfigClasses();
// Returns the class of a model_type, or null if there is none.
const ConfigClass* FindConfigClass(std::string_view model_type);

// The keys of every class that have no effect: PreTrainedConfig's and text generation's.
std::string_view CommonKeysWithoutEffect();

}  // namespace penstock
