#include "cli/commands/train_words.h"

#include <fmt/format.h>

#include <filesystem>
#include <string_view>

#include "base/text/yaml_map.h"

namespace penstock {
namespace {

using Arguments = std::vector<std::string>;

bool IsTrain(const Arguments& command, std::size_t at) {
  return at > 0 && command[at] == "train" &&
         std::filesystem::path(command[at - 1]).filename().string().starts_with("penstock");
}

// Returns the index of the first word after 'penstock train', or the number of words.
std::size_t FindTrain(const Arguments& command) {
  for (std::size_t i = 1; i < command.size(); ++i) {
    if (IsTrain(command, i)) return i + 1;
  }
  return command.size();
}

// Returns the value if the word at `at` gives the key: KEY=VALUE, --KEY=VALUE, or --KEY VALUE.
std::optional<std::string> ValueOf(std::string_view key, const Arguments& command, std::size_t at) {
  std::string_view word = command[at];
  const bool is_option = word.starts_with("--");
  if (is_option) word.remove_prefix(2);
  if (is_option && word == key && at + 1 < command.size()) return command[at + 1];
  if (!word.starts_with(key) || !word.substr(key.size()).starts_with('=')) return std::nullopt;
  return std::string(word.substr(key.size() + 1));
}

// Replaces `value` by the configuration's, if it has one. Returns false if it is not valid.
bool ReadKey(const YamlMap& config, const char* key, std::string& value) {
  const auto text = config.Text(key);
  if (!text) return false;
  if (*text) value = **text;
  return true;
}

bool ReadConfig(const std::string& path, std::string& folder, std::string& name) {
  const auto node = LoadYaml(path);
  if (!node) return false;
  const auto config = YamlMap::Of(*node, "the configuration");
  return config && ReadKey(*config, "folder", folder) && ReadKey(*config, "name", name);
}

}  // namespace

Arguments WithResume(const Arguments& command) {
  for (std::size_t i = FindTrain(command); i < command.size(); ++i) {
    if (ValueOf("resume", command, i)) return command;
  }
  Arguments resuming;
  for (std::size_t i = 0; i < command.size(); ++i) {
    resuming.push_back(command[i]);
    if (IsTrain(command, i)) resuming.insert(resuming.end(), {"--resume", "auto"});
  }
  return resuming;
}

std::optional<std::string> RunOf(const Arguments& command) {
  const std::size_t begin = FindTrain(command);
  std::string folder = "runs", name = "run";  // the defaults of TrainConfig
  bool has_config = false;
  for (std::size_t i = begin; i < command.size() && !has_config; ++i) {
    const std::string extension = std::filesystem::path(command[i]).extension().string();
    if (command[i].find('=') != std::string::npos) continue;
    if (extension != ".yaml" && extension != ".yml") continue;
    if (!ReadConfig(command[i], folder, name)) return std::nullopt;
    has_config = true;
  }
  if (!has_config) return std::nullopt;
  for (std::size_t i = begin; i < command.size(); ++i) {
    if (const auto given = ValueOf("folder", command, i)) folder = *given;
    if (const auto given = ValueOf("name", command, i)) name = *given;
  }
  return fmt::format("{}/{}", folder, name);
}

}  // namespace penstock
