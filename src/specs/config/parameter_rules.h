// ParameterRules: how the optimizer updates each parameter, by its name.
#pragma once

#include <cstddef>
#include <regex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "config/parameter_groups.h"
#include "config/train_config.h"

namespace penstock {

struct ParameterRule {
  bool balance = false;  // the bias of a router, which moves by a fixed step against its load
  bool muon = false;     // else AdamW
  double lr_scale = 1;   // factor of the learning rate
  double weight_decay = 0;
  double beta1 = 0, beta2 = 0, epsilon = 0;  // of AdamW
  double momentum = 0;                       // of Muon

  friend bool operator==(const ParameterRule&, const ParameterRule&) = default;
};

class ParameterRules {
 public:
  // Requires: a configuration from ParseTrainConfig.
  explicit ParameterRules(const OptimizerConfig& config);

  // Returns the rule of a parameter of this name and number of dimensions: the optimizer's
  // settings, overridden by the first group that matches. Without a group, vectors have no weight
  // decay, and Muon leaves embeddings, learned positions and the head to AdamW. Vectors always use
  // AdamW.
  ParameterRule Of(std::string_view parameter, std::size_t dimensions) const;

  // Checks that every group is the first match of a parameter. Errors: kInvalidArgument, with a
  // suggestion.
  Status Check(std::span<const std::string> parameters) const;

 private:
  // Returns the index of the first group that matches, or the number of groups.
  std::size_t GroupOf(std::string_view parameter) const;

  OptimizerConfig config_;
  std::vector<ParameterGroup> groups_;
  std::vector<std::regex> expressions_;  // by group
};

}  // namespace penstock
