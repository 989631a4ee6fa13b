#include "cli/commands/algorithm_text.h"

namespace penstock {

std::string ChunksText(const Knobs& knobs) {
  if (knobs.min_chunks == knobs.max_chunks) return fmt::format("{}", knobs.min_chunks);
  return fmt::format("{}+ (default {})", knobs.min_chunks, knobs.default_chunks);
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
  if (algorithm.knobs.slices) text += "k, each 1/k as large";
  if (algorithm.knobs.steps) text += " per batch";
  return text;
}

std::vector<std::string> OptionNames(const Knobs& knobs) {
  std::vector<std::string> names;
  if (knobs.min_chunks != knobs.max_chunks) names.emplace_back("--chunks");
  if (knobs.group) names.emplace_back("--group");
  if (knobs.slices) names.emplace_back("--slices");
  if (knobs.waves) names.emplace_back("--waves");
  if (knobs.steps) names.emplace_back("--steps");
  if (knobs.split) names.emplace_back("--split");
  if (knobs.memory_limit) names.emplace_back("--memory-limit");
  if (knobs.objective) names.emplace_back("--objective");
  return names;
}

}  // namespace penstock
