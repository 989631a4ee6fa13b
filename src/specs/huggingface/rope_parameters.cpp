// RopeParametersOf(): what RotaryEmbeddingConfigMixin of transformers makes of a file's keys.
#include <cmath>

#include "base/text/fields.h"
#include "base/text/quote.h"
#include "huggingface/config_file.h"

namespace penstock {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kTypes = "default linear llama3 yarn";

class RopeReader {
 public:
  explicit RopeReader(ConfigFile& file) : file_(file), values_(file.values) {}

  Result<Json> Read() {
    PENSTOCK_TRY_STATUS(Choose());
    PENSTOCK_TRY_STATUS(ReadType());
    PENSTOCK_TRY_STATUS(ReadTheta());
    PENSTOCK_TRY_STATUS(ReadPartial());
    if (type_ != "default") PENSTOCK_TRY_STATUS(ReadNumber("factor"));
    if (type_ == "llama3" || type_ == "yarn") PENSTOCK_TRY_STATUS(ReadOriginal());
    if (type_ == "llama3") {
      PENSTOCK_TRY_STATUS(ReadNumber("low_freq_factor"));
      PENSTOCK_TRY_STATUS(ReadNumber("high_freq_factor"));
    }
    if (type_ == "yarn") PENSTOCK_TRY_STATUS(ReadYarn());
    PENSTOCK_TRY_STATUS(CheckOthers());
    return std::move(read_);
  }

 private:
  template <class... Args>
  Status Fault(std::string_view key, fmt::format_string<Args...> text, Args&&... args) const {
    return InvalidParameter(fmt::format("{}.{}", section_, key), ": {}",
                            fmt::format(text, std::forward<Args>(args)...));
  }

  // rope_scaling replaces all of rope_parameters, unless it is empty.
  Status Choose() {
    for (const char* const key : {"rope_parameters", "rope_scaling"}) {
      const auto found = values_.find(key);
      if (found == values_.end() || found->is_null()) continue;
      if (found->empty()) continue;
      section_ = key;
      given_ = *found;
    }
    return {};
  }

  Status ReadType() {
    type_ = "default";
    for (const char* const key : {"rope_type", "type"}) {
      const auto found = given_.find(key);
      if (found == given_.end()) continue;
      if (!found->is_string()) return Fault(key, "a text is needed");
      type_ = found->get<std::string>();
      break;
    }
    read_["rope_type"] = type_;
    for (const std::string_view known : Words(kTypes)) {
      if (type_ == known) return {};
    }
    return InvalidParameter(section_, ": the type {} is not supported, only {}", Quote(type_),
                            kTypes);
  }

  Status ReadTheta() {
    if (given_.contains("rope_theta")) return ReadNumber("rope_theta");
    read_["rope_theta"] = file_.type->rope_theta;
    const auto found = values_.find("rope_theta");
    if (found == values_.end()) return {};
    if (!IsPositive(*found)) return InvalidParameter("rope_theta", ": a number above 0 is needed");
    read_["rope_theta"] = *found;
    return {};
  }

  Status ReadPartial() const {
    for (const Json* const place : {&given_, &values_}) {
      const auto found = place->find("partial_rotary_factor");
      if (found == place->end() || found->is_null() || *found == 1) continue;
      return InvalidParameter("partial_rotary_factor", ": {} is not supported, only 1",
                              Quote(found->dump()));
    }
    return {};
  }

  Status ReadNumber(const char* key) {
    const auto found = given_.find(key);
    if (found == given_.end()) return Fault(key, "the key is missing, which {} needs", type_);
    if (!IsPositive(*found)) return Fault(key, "a number above 0 is needed");
    read_[key] = *found;
    return {};
  }

  // Tokens of the pretraining: a key of the whole file counts more than the section's.
  Status ReadOriginal() {
    constexpr const char* kKey = "original_max_position_embeddings";
    const Json* value = &values_.at("max_position_embeddings");
    if (given_.contains(kKey)) value = &given_[kKey];
    if (values_.contains(kKey)) value = &values_[kKey];
    if (!value->is_number_integer() || value->get<double>() < 1) {
      return Fault(kKey, "a whole number of at least 1 is needed");
    }
    read_[kKey] = *value;
    return {};
  }

  Status ReadYarn() {
    for (const auto& [key, otherwise] :
         {std::pair("beta_fast", 32.0), std::pair("beta_slow", 1.0), std::pair("mscale", 0.0),
          std::pair("mscale_all_dim", 0.0), std::pair("attention_factor", 0.0)}) {
      read_[key] = otherwise;
      const auto found = given_.find(key);
      if (found == given_.end() || found->is_null()) continue;
      const bool may_be_zero = std::string_view(key) != "attention_factor";
      if (may_be_zero && found->is_number() && *found == 0) continue;
      PENSTOCK_TRY_STATUS(ReadNumber(key));
    }
    const auto truncate = given_.find("truncate");
    if (truncate == given_.end() || *truncate == true) return {};
    return Fault("truncate", "{} is not supported, only true", Quote(truncate->dump()));
  }

  // Keys that this type does not read.
  Status CheckOthers() {
    for (const auto& [key, value] : given_.items()) {
      if (read_.contains(key) || key == "type" || key == "partial_rotary_factor" ||
          key == "truncate" || key == "original_max_position_embeddings") {
        continue;
      }
      if (value.is_object()) {
        return Fault(Printable(key), "parameters of one type of layers are not supported");
      }
      // Latent attention scales its scores by it, whatever the type.
      if (key == "mscale_all_dim" && file_.type->is_latent && type_ != "default" &&
          !value.is_null() && value != 0) {
        return Fault(key, "it is only supported with the type yarn");
      }
      file_.unknown.push_back(fmt::format("{}.{}", section_, key));
    }
    return {};
  }

  static bool IsPositive(const Json& value) {
    return value.is_number() && value.get<double>() > 0 && std::isfinite(value.get<double>());
  }

  ConfigFile& file_;
  const Json& values_;
  std::string section_ = "rope_parameters";
  Json given_ = Json::object();
  Json read_ = Json::object();
  std::string type_;
};

}  // namespace

Result<Json> RopeParametersOf(ConfigFile& file) { return RopeReader(file).Read(); }

}  // namespace penstock
