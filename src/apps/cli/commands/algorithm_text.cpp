#include "cli/commands/algorithm_text.h"

namespace penstock {

std::string ChunksText(const SupportedParameters& supported) {
  if (supported.min_chunks == supported.max_chunks) return fmt::format("{}", supported.min_chunks);
  return fmt::format("{}+ (default {})", supported.min_chunks, supported.default_chunks);
}

std::string ConstraintText(const Algorithm& algorithm) {
  if (algorithm.constraint.empty()) return "any ranks, any microbatches";
  return std::string(algorithm.constraint);
}

std::string MessagesText(const Algorithm& algorithm) {
  std::string text;
  switch (algorithm.placement) {
    case PlacementForm::kOther:
      return "";
    case PlacementForm::kLinear:
    case PlacementForm::kBidirectional:
      text = "2(p-1)m";
      break;
    case PlacementForm::kLooped:
      text = "2(pv-1)m";
      break;
    case PlacementForm::kVee:
      text = "4(p-1)m";
      break;
    case PlacementForm::kZigzag:
      text = "2v(p-1)m";
      break;
  }
  if (algorithm.supported.slices) text += "k, each 1/k as large";
  if (algorithm.supported.steps) text += " per batch";
  return text;
}

std::vector<std::string> OptionNames(const SupportedParameters& supported) {
  std::vector<std::string> names;
  if (supported.min_chunks != supported.max_chunks) names.emplace_back("--chunks");
  if (supported.group) names.emplace_back("--group");
  if (supported.slices) names.emplace_back("--slices");
  if (supported.waves) names.emplace_back("--waves");
  if (supported.steps) names.emplace_back("--steps");
  if (supported.split) names.emplace_back("--split");
  if (supported.memory_limit) names.emplace_back("--memory-limit");
  if (supported.objective) names.emplace_back("--objective");
  return names;
}

}  // namespace penstock
