#include "model_spec/huggingface_config.h"

#include <fmt/ranges.h>

#include <filesystem>
#include <map>
#include <memory>

#include "base/files.h"
#include "base/text/nearest.h"
#include "base/text/quote.h"
#include "huggingface/config_file.h"
#include "model_spec/check_model.h"
#include "model_spec/huggingface_format.h"
#include "model_spec/huggingface_shapes.h"
#include "model_spec/model_spec.h"

namespace penstock {
namespace {

using Json = nlohmann::json;

// Returns the text of a number, a bool or a text; nullopt for anything else.
std::optional<std::string> TextOf(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_boolean()) return value.get<bool>() ? "true" : "false";
  if (value.is_number_float()) return fmt::format("{}", value.get<double>());
  if (value.is_number()) return value.dump();
  return {};
}

Result<const ModelSpec*> ModelOfType(std::string_view type) {
  std::vector<std::string_view> types;
  for (const std::string_view name : ModelNames()) {
    const ModelSpec* const model = FindModelSpec(name);
    if (model->huggingface.model_type.empty()) continue;
    if (model->huggingface.model_type == type) return model;
    types.push_back(model->huggingface.model_type);
  }
  return InvalidParameter(
      "model_type", ": no model has the type {}; {}", Quote(type),
      DidYouMean(type, types, fmt::format("there are {}", fmt::join(types, ", "))));
}

// The longest sequence of a model.
std::int64_t PositionsOf(const Json& values) {
  for (const char* const key : {"max_position_embeddings", "n_positions"}) {
    const auto found = values.find(key);
    if (found != values.end() && found->is_number_integer()) return found->get<std::int64_t>();
  }
  return ModelConfig().sequence;
}

// Reads a model whose sequences are the longest that it can use.
Result<ModelConfig> ReadConfig(ConfigFile& file) {
  PENSTOCK_TRY(const ModelSpec* model, ModelOfType(file.model_type));
  if (file.type != nullptr && file.type->rope_theta > 0) {
    PENSTOCK_TRY(file.values["rope_parameters"], RopeParametersOf(file));
  }
  ModelConfig config;
  config.name = model->name;
  config.sequence = PositionsOf(file.values);
  HuggingFaceReader reader(file.values);
  model->huggingface.read(reader, config);
  PENSTOCK_TRY_STATUS(reader.Finish());
  PENSTOCK_TRY_STATUS(CheckModel(
      config, [&](std::string_view parameter) { return reader.KeyOf(parameter, config); }));
  return config;
}

// Calls read(file) with the file at `path`, or config.json in this folder. Adds the path to errors.
template <class Read>
auto ReadConfigFile(const std::string& path, const Read& read)
    -> decltype(read(std::declval<ConfigFile&>())) {
  std::error_code error;
  const bool is_folder = std::filesystem::is_directory(path, error);
  const std::string file =
      is_folder ? (std::filesystem::path(path) / "config.json").string() : path;
  const auto text = ReadFile(file, kConfigFile);
  // The path may be any text of a configuration, with line breaks.
  if (!text) return MakeError(text.error().code, "{}", Printable(text.error().line()));
  auto config = ParseConfigFile(*text);
  if (!config) return tl::unexpected(In(Printable(file), config.error()));
  auto result = read(*config);
  if (!result) return tl::unexpected(In(Printable(file), result.error()));
  ReportUnknownKeys(*config, file);
  return result;
}

Result<ModelShape> ShapeOfFile(ConfigFile& file) {
  const std::vector<std::string_view> types = HuggingFaceShapeTypes();
  if (std::ranges::find(types, file.model_type) != types.end()) {
    return ReadHuggingFaceSizes(file.model_type, file.values);
  }
  if (file.model_type == "kimi_k2") {  // has the keys of DeepSeek-V3
    file.values["model_type"] = "deepseek_v3";
    PENSTOCK_TRY(file, ParseConfigFile(file.values.dump()));
  }
  PENSTOCK_TRY(const ModelConfig config, ReadConfig(file));
  return ShapeOf(config);
}

// The options of a model as it computes, by key. Options that only training reads are not there.
Result<std::map<std::string, std::string>> ComputedOptions(const ModelConfig& config) {
  const std::unique_ptr<ModelOptions> options = MakeModelOptions(config.name);
  PENSTOCK_TRY_STATUS(ReadOptions(config, *options));
  options->Resolve(config);
  std::map<std::string, std::string> texts;
  for (const Field& field : options->Fields()) {
    if (field.changes == Changes::kModel) texts.emplace(field.key, FieldText(field));
  }
  return texts;
}

// Checks that the text of a config.json describes the model.
Status CheckWritten(const ModelConfig& config, std::string_view text) {
  PENSTOCK_TRY(ConfigFile file, ParseConfigFile(text));
  PENSTOCK_TRY(const ModelConfig read, ReadConfig(file));
  PENSTOCK_TRY(auto ours, ComputedOptions(config));
  PENSTOCK_TRY(auto theirs, ComputedOptions(read));
  for (const auto& [key, size] :
       {std::pair("vocabulary", &ModelConfig::vocabulary), std::pair("dim", &ModelConfig::dim),
        std::pair("layers", &ModelConfig::layers)}) {
    ours[key] = fmt::format("{}", config.*size);
    theirs[key] = fmt::format("{}", read.*size);
  }
  std::vector<std::string> lost;
  for (const auto& [key, value] : ours) {
    if (value == theirs[key]) continue;
    lost.push_back(fmt::format("model.{}={} (there it is {})", key, value, theirs[key]));
  }
  if (lost.empty()) return {};
  return InvalidArgument("{} cannot express {}", file.type != nullptr ? file.type->name : "it",
                         fmt::join(lost, ", "));
}

}  // namespace

void HuggingFaceReader::Fault(const char* key, std::string_view what) {
  if (status_) status_ = InvalidParameter(key, ": {}", what);
}

void HuggingFaceReader::Size(const char* key, std::int64_t& size) {
  size_keys_[&size] = key;
  if (!Has(key)) return Fault(key, "the key is missing");
  const Json& value = root_[key];
  if (!value.is_number_integer() || value.get<double>() < 1 ||
      value.get<double>() > kMostModelSize) {
    return Fault(key, fmt::format("a whole number from 1 to {} is needed", kMostModelSize));
  }
  size = value.get<std::int64_t>();
}

void HuggingFaceReader::Option(const char* key, std::string_view option, std::string_view otherwise,
                               ModelConfig& config) {
  option_keys_[std::string(option)] = key;
  if (!Has(key) && otherwise.empty()) return Fault(key, "the key is missing");
  std::optional<std::string> text(otherwise);
  if (Has(key)) text = TextOf(root_[key]);
  if (!text) return Fault(key, "a number, a bool or a text is needed");
  config.options[std::string(option)] = *text;
}

void HuggingFaceReader::Expect(const char* key, const Json& only) {
  if (!Has(key) || root_[key] == only) return;
  Fault(key, fmt::format("{} is not supported, only {}", Quote(root_[key].dump()), only.dump()));
}

void HuggingFaceReader::Include(const HuggingFaceReader& inner, std::string_view section) {
  for (const auto& [option, key] : inner.option_keys_) {
    option_keys_[option] = fmt::format("{}.{}", section, key);
  }
}

std::string HuggingFaceReader::KeyOf(std::string_view parameter, const ModelConfig& config) const {
  constexpr std::string_view kSection = "model.";
  if (!parameter.starts_with(kSection)) return std::string(parameter);
  const std::string_view name = parameter.substr(kSection.size());
  for (const auto& [size, of_model] :
       {std::pair(&config.vocabulary, "vocabulary"), std::pair(&config.dim, "dim"),
        std::pair(&config.layers, "layers")}) {
    const auto key = size_keys_.find(size);
    if (name == of_model && key != size_keys_.end()) return key->second;
  }
  if (name == "sequence") return "max_position_embeddings";
  const auto key = option_keys_.find(name);
  return key == option_keys_.end() ? std::string(parameter) : key->second;
}

const Json* HuggingFaceReader::Value(const char* key) const {
  return Has(key) ? &root_[key] : nullptr;
}

const Json* HuggingFaceReader::Object(const char* key) const {
  return root_.contains(key) && root_[key].is_object() ? &root_[key] : nullptr;
}

bool IsHuggingFaceFolder(const std::string& path) {
  std::error_code error;
  return std::filesystem::exists(std::filesystem::path(path) / "config.json", error);
}

bool HasHuggingFaceWeights(const std::string& folder) {
  std::error_code error;
  const std::filesystem::path root(folder);
  return std::filesystem::exists(root / kHuggingFaceWeights, error) ||
         std::filesystem::exists(root / kHuggingFaceIndex, error);
}

Result<ModelConfig> ReadHuggingFaceConfig(const std::string& path) {
  return ReadConfigFile(path, [&](ConfigFile& file) -> Result<ModelConfig> {
    const auto quantization = file.values.find("quantization_config");
    if (quantization != file.values.end() && !quantization->is_null() &&
        HasHuggingFaceWeights(path)) {
      return InvalidParameter("quantization_config",
                              ": quantized weights are not supported; save the model dequantized, "
                              "without this key");
    }
    PENSTOCK_TRY(ModelConfig config, ReadConfig(file));
    config.sequence = ModelConfig().sequence;
    return config;
  });
}

Result<ModelShape> ReadHuggingFaceShape(const std::string& path) {
  return ReadConfigFile(path, ShapeOfFile);
}

Result<ModelShape> ParseHuggingFaceShape(std::string_view text) {
  PENSTOCK_TRY(ConfigFile file, ParseConfigFile(text));
  return ShapeOfFile(file);
}

std::string HuggingFaceName::OfExpert(std::int64_t expert) const {
  std::string text = name;
  return text.replace(text.find(".E.") + 1, 1, fmt::format("{}", expert));
}

Result<HuggingFaceName> HuggingFaceNameOf(const ModelConfig& config, std::string_view parameter) {
  constexpr std::string_view kLayers = "layers.";
  std::string pattern(parameter), layer;
  // The block of a predictor has the number after the last layer.
  constexpr std::string_view kPredictor = "predictor.", kPredictorBlock = "predictor.block.";
  if (parameter.starts_with(kPredictor)) layer = fmt::format("{}", config.layers);
  if (parameter.starts_with(kPredictorBlock)) {
    pattern = fmt::format("{}N.{}", kLayers, parameter.substr(kPredictorBlock.size()));
  } else if (parameter.starts_with(kLayers)) {
    const std::size_t end = parameter.find('.', kLayers.size());
    layer = parameter.substr(kLayers.size(), end - kLayers.size());
    pattern.replace(kLayers.size(), layer.size(), "N");
  }
  for (const auto& [ours, theirs, layout] : FindModelSpec(config.name)->huggingface.names) {
    if (ours != pattern) continue;
    HuggingFaceName result{std::string(theirs), layout};
    const std::size_t number = result.name.find(".N.");
    if (number != std::string::npos) result.name.replace(number + 1, 1, layer);
    return result;
  }
  return InvalidArgument("model {} has no name of Hugging Face for {}", config.name, parameter);
}

Result<std::string> HuggingFaceConfigText(const ModelConfig& config) {
  PENSTOCK_TRY_STATUS(CheckModel(config));
  const HuggingFaceFormat& format = FindModelSpec(config.name)->huggingface;
  if (format.model_type.empty()) {
    return InvalidArgument("model {} has no format of Hugging Face", config.name);
  }
  nlohmann::ordered_json root;
  root["architectures"] = {format.architecture};
  root["model_type"] = format.model_type;
  format.write(config, root);
  std::string text = root.dump(2) + "\n";
  if (!format.read) return text;
  const Status written = CheckWritten(config, text);
  if (written) return text;
  return InvalidArgument("the model has no config.json in Hugging Face's format: {}",
                         written.error().line());
}

}  // namespace penstock
