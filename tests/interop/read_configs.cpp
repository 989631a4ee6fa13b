// Reads config.json files as our parsers do, for configurations_agree.py.
//
// Usage: read_configs. Writes a line of JSON with the table of classes, then one for each line of
// stdin, which has the text of a file: its values, rope_parameters and unknown keys, or the error.
#include <cstdio>
#include <iostream>
#include <string>

#include "base/text/fields.h"
#include "huggingface/config_file.h"

namespace penstock {
namespace {

using Json = nlohmann::json;

Json ClassJson(const ConfigClass& type) {
  Json keys = Json::object();
  for (const ClassKey& key : type.keys) {
    keys[std::string(key.name)] = {{"default", Json::parse(key.otherwise)},
                                   {"only", key.kind == KeyKind::kOnly},
                                   {"may_be_null", key.may_be_null},
                                   {"in_class", key.in_class}};
  }
  Json aliases = Json::object();
  for (const auto& [alias, key] : type.aliases) aliases[std::string(alias)] = key;
  return {{"name", type.name},
          {"keys", keys},
          {"without_effect", Words(type.without_effect)},
          {"aliases", aliases},
          {"rope_theta", type.rope_theta}};
}

Result<Json> Read(const std::string& text) {
  PENSTOCK_TRY(ConfigFile file, ParseConfigFile(text));
  Json rope;
  if (file.type != nullptr && file.type->rope_theta > 0) {
    PENSTOCK_TRY(rope, RopeParametersOf(file));
  }
  if (file.values.contains("mlp_only_layers")) {
    PENSTOCK_TRY([[maybe_unused]] const auto dense, LeadingDenseLayers(file.values));
  }
  return Json{{"values", file.values}, {"rope", rope}, {"unknown", file.unknown}};
}

void AnswerLines() {
  Json classes = Json::object();
  for (const ConfigClass& type : ConfigClasses()) {
    classes[std::string(type.model_type)] = ClassJson(type);
  }
  std::printf(
      "%s\n",
      Json{{"classes", classes}, {"common", Words(CommonKeysWithoutEffect())}}.dump().c_str());
  for (std::string line; std::getline(std::cin, line);) {
    const Result<Json> read = Read(line);
    const Json answer = read ? *read : Json{{"error", read.error().line()}};
    std::printf("%s\n", answer.dump().c_str());
  }
}

}  // namespace
}  // namespace penstock

int main() { penstock::AnswerLines(); }
