// How a model's configuration and parameters are called in Hugging Face's format: part of its
// ModelEntry.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model_spec/model_config.h"

namespace penstock {

// Reads the keys of a config.json. The first fault is the result of Finish(), and names the key.
class HuggingFaceReader {
 public:
  explicit HuggingFaceReader(const nlohmann::json& root) : root_(root) {}

  // Whether the key has a value that is not null.
  bool Has(const char* key) const { return root_.contains(key) && !root_[key].is_null(); }
  // Sets a size from a whole number, which must be there.
  void Size(const char* key, std::int64_t& size);
  // Sets an option, as text, from a number, a bool or a text; from `otherwise` if the key is
  // missing. Without `otherwise`, it must be there.
  void Option(const char* key, std::string_view option, std::string_view otherwise,
              ModelConfig& config);
  // Reports a fault if the key has another value than the only one that the model supports.
  void Expect(const char* key, const nlohmann::json& only);
  // Returns the value, or the object, of a key; null if there is none.
  const nlohmann::json* Value(const char* key) const;
  const nlohmann::json* Object(const char* key) const;
  void Fault(const char* key, std::string_view what);
  // The whole object. For model types of the transformers package, missing keys have been set to
  // their defaults, and values have been checked.
  const nlohmann::json& root() const { return root_; }
  void Fail(const Error& error) {
    if (status_) status_ = tl::unexpected(error);
  }

  // Adds the keys that `inner` read, which are in the object `section`.
  void Include(const HuggingFaceReader& inner, std::string_view section);
  // Returns the key of the file that set a parameter ("model.heads"), which it returns if none did.
  std::string KeyOf(std::string_view parameter, const ModelConfig& config) const;

  Status Finish() const { return status_; }

 private:
  const nlohmann::json& root_;
  Status status_;
  std::map<std::string, std::string, std::less<>> option_keys_;  // by option of the model
  std::map<const std::int64_t*, std::string> size_keys_;         // by member of ModelConfig
};

enum class TensorLayout : std::uint8_t {
  kSame,
  kTransposed,   // the matrix is transposed
  kPerExpert,    // each matrix of [experts, out, in] is a tensor, whose name has its number for E
  kLeadingRows,  // theirs may have more rows; ours are the first
};

// Our name of a parameter, and theirs. N is the number of the layer.
struct HuggingFaceTensor {
  std::string_view ours;
  std::string_view theirs;
  TensorLayout layout = TensorLayout::kSame;
};

struct HuggingFaceFormat {
  std::string_view model_type;    // "llama"
  std::string_view architecture;  // "LlamaForCausalLM"
  std::function<void(HuggingFaceReader& reader, ModelConfig& config)> read;
  std::vector<HuggingFaceTensor> names;
  // Adds everything but model_type and architectures.
  std::function<void(const ModelConfig& config, nlohmann::ordered_json& root)> write;
};

}  // namespace penstock
