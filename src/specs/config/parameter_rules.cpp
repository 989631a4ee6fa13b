#include "config/parameter_rules.h"

#include <algorithm>

#include "base/text/nearest.h"
#include "base/text/quote.h"
#include "model_spec/model_config.h"

namespace penstock {
namespace {

// Muon is for matrices that map hidden states (Jordan et al. 2024).
bool IsEmbeddingOrHead(std::string_view parameter) {
  return parameter.starts_with("embedding.") || parameter.starts_with("positions.") ||
         parameter.starts_with("head.");
}

}  // namespace

ParameterRules::ParameterRules(const OptimizerConfig& config)
    : config_(config), groups_(ParseParameterGroups(config.groups).value()) {
  for (const ParameterGroup& group : groups_) expressions_.emplace_back(group.match);
}

std::size_t ParameterRules::GroupOf(std::string_view parameter) const {
  const auto found = std::ranges::find_if(expressions_, [&](const std::regex& expression) {
    return std::regex_search(parameter.begin(), parameter.end(), expression);
  });
  return static_cast<std::size_t>(found - expressions_.begin());
}

ParameterRule ParameterRules::Of(std::string_view parameter, std::size_t dimensions) const {
  const std::size_t index = GroupOf(parameter);
  const ParameterGroup group = index < groups_.size() ? groups_[index] : ParameterGroup();
  const bool is_matrix = dimensions == 2 || dimensions == 3;
  const bool by_default = config_.name == "muon" && !IsEmbeddingOrHead(parameter);
  ParameterRule rule;
  rule.balance = IsRouterBias(parameter);
  rule.muon = is_matrix && (group.name ? *group.name == "muon" : by_default);
  rule.lr_scale = group.lr_scale.value_or(1);
  rule.weight_decay = group.weight_decay.value_or(dimensions >= 2 ? config_.weight_decay : 0);
  rule.beta1 = group.beta1.value_or(config_.beta1);
  rule.beta2 = group.beta2.value_or(config_.beta2);
  rule.epsilon = group.epsilon.value_or(config_.epsilon);
  rule.momentum = group.momentum.value_or(config_.momentum);
  return rule;
}

Status ParameterRules::Check(std::span<const std::string> parameters) const {
  std::vector<bool> is_used(groups_.size() + 1);
  for (const std::string& parameter : parameters) is_used[GroupOf(parameter)] = true;
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    if (is_used[i]) continue;
    const auto matches = [&](const std::string& parameter) {
      return std::regex_search(parameter, expressions_[i]);
    };
    if (std::ranges::any_of(parameters, matches)) {
      return InvalidParameter("optimizer.groups",
                              ": all parameters that {} matches belong to earlier groups: move the "
                              "group to the front",
                              Quote(groups_[i].match));
    }
    const std::vector<std::string_view> names(parameters.begin(), parameters.end());
    return InvalidParameter("optimizer.groups", ": {} matches no parameter{}",
                            Quote(groups_[i].match),
                            DidYouMean(groups_[i].match, names,
                                       fmt::format("a parameter's name is {}", Quote(names.back())))
                                .insert(0, ": "));
  }
  return {};
}

}  // namespace penstock
