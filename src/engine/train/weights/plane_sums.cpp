#include "train/weights/plane_sums.h"

#include <utility>

#include "graph/ops/c10d_collective.h"

namespace penstock {

PlaneSums::PlaneSums(const PlaneOptions& options, std::span<const std::string> names)
    : context_(options.context) {
  for (std::size_t i = 0; i < names.size(); ++i) {
    const auto found = options.divided.find(names[i]);
    if (found != options.divided.end()) divided_[found->second].push_back(i);
  }
}

void PlaneSums::AddNorms(std::span<double> squared) const {
  for (const auto& [group, parameters] : divided_) {
    std::vector<double> parts;
    for (const std::size_t parameter : parameters) parts.push_back(squared[parameter]);
    SumOverC10dGroup(group, parts);
    for (std::size_t i = 0; i < parts.size(); ++i) squared[parameters[i]] = parts[i];
  }
}

void PlaneSums::AverageGradients(const at::Tensor& gradients) {
  if (context_ == 0 || std::exchange(is_averaged_, true)) return;
  AverageOverC10dGroup(context_, gradients);
}

}  // namespace penstock
