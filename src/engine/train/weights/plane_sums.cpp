#include "train/weights/plane_sums.h"

#include <ATen/ops/cat.h>
#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "graph/ops/c10d_collective.h"

namespace penstock {
namespace {

void AddPacked(std::pair<std::int64_t, bool> sum, const std::vector<at::Tensor>& gradients) {
  std::vector<at::Tensor> flat;
  for (const at::Tensor& gradient : gradients) flat.push_back(gradient.flatten());
  const at::Tensor packed = at::cat(flat);
  AllReduceOverC10dGroup(sum.first, sum.second ? "avg" : "sum", packed);
  std::int64_t begin = 0;
  for (const at::Tensor& gradient : gradients) {
    gradient.copy_(packed.narrow(0, begin, gradient.numel()).view(gradient.sizes()));
    begin += gradient.numel();
  }
}

}  // namespace

PlaneSums::PlaneSums(const PlaneOptions& options, std::span<const std::string> names)
    : context_(options.context), names_(names.begin(), names.end()) {
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

void PlaneSums::AddProgram(const StageProgram& program) {
  for (const StagePiece* const piece : {&program.backward_input, &program.backward_weight}) {
    for (const Bound& bound : piece->graph.bound) {
      if (bound.kind != BoundKind::kGradient) continue;
      std::vector<Sum> sums;
      for (const GradientSum& sum : program.sums) {
        if (sum.parameter == bound.name) sums.emplace_back(sum.group, sum.is_mean);
      }
      const auto [known, is_new] = sums_.try_emplace(bound.name, sums);
      if (is_new || known->second == sums) continue;
      throw std::runtime_error(fmt::format(
          "the gradient of {} is summed over processes in some calls of its stage and not in "
          "others: sum it in all of them",
          bound.name));
    }
  }
}

void PlaneSums::AddPartial(std::span<const at::Tensor> gradients) const {
  for (std::size_t round = 0;; ++round) {
    // By collective, in the order of the parameters, which is the same on all planes.
    std::vector<std::pair<Sum, std::vector<at::Tensor>>> packs;
    for (std::size_t i = 0; i < names_.size(); ++i) {
      const auto found = sums_.find(names_[i]);
      if (found == sums_.end() || found->second.size() <= round) continue;
      const Sum sum = found->second[round];
      const auto pack = std::ranges::find_if(packs, [&](const auto& each) {
        return each.first == sum && each.second.front().dtype() == gradients[i].dtype();
      });
      if (pack == packs.end()) {
        packs.push_back({sum, {gradients[i]}});
      } else {
        pack->second.push_back(gradients[i]);
      }
    }
    if (packs.empty()) return;
    for (const auto& [sum, tensors] : packs) AddPacked(sum, tensors);
  }
}

void PlaneSums::AverageGradients(const at::Tensor& gradients) {
  if (context_ == 0 || std::exchange(is_averaged_, true)) return;
  AllReduceOverC10dGroup(context_, "avg", gradients);
}

}  // namespace penstock
