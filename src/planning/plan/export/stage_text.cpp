#include "plan/export/stage_text.h"

#include <fmt/ranges.h>

#include <vector>

namespace penstock {
namespace {

std::string Repeated(char part, std::int64_t count) {
  if (count == 0) return "";
  return count == 1 ? std::string(1, part) : fmt::format("{}*{}", part, count);
}

std::string PartsOf(const LayerRange& stage) {
  return (stage.embedding ? "E" : "") + Repeated('t', stage.end - stage.begin) +
         Repeated('m', stage.predictors) + (stage.head ? "L" : "");
}

}  // namespace

std::string MegatronLayoutOf(std::span<const LayerRange> stages) {
  constexpr std::size_t kLeastRun = 3;  // of equal stages that are written once
  std::vector<std::string> parts;
  for (const LayerRange& stage : stages) parts.push_back(PartsOf(stage));
  std::string text;
  for (std::size_t i = 0; i < parts.size();) {
    std::size_t end = i + 1;
    // The last stage has no bar.
    while (end + 1 < parts.size() && parts[end] == parts[i]) ++end;
    const std::size_t count = end - i;
    if (count >= kLeastRun && !parts[i].empty()) {
      text += fmt::format("({}|)*{}", parts[i], count);
    } else {
      for (; i < end; ++i) text += parts[i] + (i + 1 < parts.size() ? "|" : "");
    }
    i = end;
  }
  return text;
}

std::string ModuleListsOf(std::span<const LayerRange> stages) {
  std::string text = "[\n";
  for (const LayerRange& stage : stages) {
    std::vector<std::string> modules;
    if (stage.embedding) modules.emplace_back("\"tok_embeddings\"");
    for (std::int64_t layer = stage.begin; layer < stage.end; ++layer) {
      modules.push_back(fmt::format("\"layers.{}\"", layer));
    }
    if (stage.head) modules.insert(modules.end(), {"\"norm\"", "\"lm_head\""});
    text += fmt::format("  [{}],\n", fmt::join(modules, ", "));
  }
  return text + "]";
}

}  // namespace penstock
