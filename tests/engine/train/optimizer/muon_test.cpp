// Muon against PyTorch's own optimizer: muon_fixture.json, which make_muon_fixture.py writes.
#include "train/optimizer/muon.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/files.h"
#include "train/optimizer/optimizer.h"

namespace penstock {
namespace {

using Numbers = nlohmann::json;

OptimizerConfig MuonConfig() { return {.name = "muon", .lr_end = 1, .warmup = 0}; }

std::shared_ptr<LearningRate> RateOf(const OptimizerConfig& config) {
  return std::make_shared<LearningRate>(LearningRate{config, 100});
}

TEST(Muon, StepsAsPyTorchDoes) {
  const Numbers fixture = Numbers::parse(ReadFile(PENSTOCK_MUON_FIXTURE).value());
  for (const auto& [name, expected] : fixture.at("cases").items()) {
    const auto tensor = [&](const Numbers& numbers, const std::string& parameter) {
      return at::tensor(numbers.at(parameter).get<std::vector<float>>())
          .reshape(fixture.at("shapes").at(parameter).get<std::vector<std::int64_t>>());
    };
    OptimizerConfig config = MuonConfig();
    config.adjust_lr_fn = name;
    config.lr = expected.at("optimizer").at("lr");
    config.weight_decay = expected.at("optimizer").at("weight_decay");
    config.momentum = expected.at("optimizer").at("momentum");
    Optimizer optimizer(RateOf(config));
    std::vector<NamedParameter> parameters;
    for (const auto& [parameter, numbers] : expected.at("start").items()) {
      const at::Tensor value = tensor(expected.at("start"), parameter);
      parameters.push_back({parameter, value, at::zeros_like(value)});
    }
    for (const Numbers& step : expected.at("steps")) {
      std::map<std::string, at::Tensor> before;
      for (NamedParameter& each : parameters) {
        before[each.name] = each.value.clone();
        each.gradient.copy_(tensor(step.at("gradients"), each.name));
      }
      optimizer.Update(parameters);
      for (const NamedParameter& each : parameters) {
        const at::Tensor fp32 = tensor(step.at("weights"), each.name);
        EXPECT_TRUE(at::allclose(each.value, fp32, 1e-4, 1e-5)) << name << " " << each.name;
        // PyTorch orthogonalizes in bf16, which changes an update by a few percent.
        const double change = (each.value - before[each.name]).abs().max().item<double>();
        const double error =
            (each.value - tensor(step.at("bf16"), each.name)).abs().max().item<double>();
        EXPECT_LT(error, 0.25 * change) << name << " " << each.name;
      }
    }
  }
}

TEST(Muon, OrthogonalizesMatricesOfAnyShape) {
  Orthogonalizer orthogonalizer;
  for (const auto& [rows, columns] :
       std::vector<std::pair<std::int64_t, std::int64_t>>{{5, 5}, {3, 20}, {20, 3}, {1, 7}}) {
    const Matrices size({rows, columns});
    orthogonalizer.Reserve(size);
    orthogonalizer.Input(size).copy_(at::randn({rows * columns}));
    const at::Tensor values =
        at::linalg_svdvals(orthogonalizer.Run(size).view({rows, columns}).clone());
    EXPECT_GT(values.min().item<float>(), 0.3);
    EXPECT_LT(values.max().item<float>(), 1.3);
  }
  EXPECT_EQ(orthogonalizer.bytes(),
            Orthogonalizer::BytesFor({Matrices({5, 5}), Matrices({3, 20})}));
}

TEST(Muon, UpdatesEachExpertAlone) {
  const at::Tensor gradient = at::randn({3, 4, 6}), start = at::randn({3, 4, 6});
  const auto update = [&](const std::vector<at::Tensor>& values,
                          const std::vector<at::Tensor>& gradients) {
    Optimizer optimizer(RateOf(MuonConfig()));
    std::vector<NamedParameter> parameters;
    for (std::size_t i = 0; i < values.size(); ++i) {
      parameters.push_back({fmt::format("w{}", i), values[i].clone(), gradients[i]});
    }
    optimizer.Update(parameters);
    std::vector<at::Tensor> updated;
    for (const NamedParameter& each : parameters) updated.push_back(each.value);
    return updated;
  };
  const auto single = update({start[0], start[1], start[2]},
                             {gradient[0].clone(), gradient[1].clone(), gradient[2].clone()});
  EXPECT_TRUE(at::equal(update({start}, {gradient}).front(), at::stack(single)));
}

TEST(Muon, LeavesVectorsEmbeddingsAndTheHeadToAdamW) {
  OptimizerConfig config = MuonConfig();
  config.groups = "[{match: 'wk', name: adamw}, {match: 'norm', lr_scale: 0.5}]";
  const ParameterRules rules(config);
  EXPECT_TRUE(rules.Of("layers.0.wq.weight", 2).muon);
  EXPECT_TRUE(rules.Of("layers.0.experts.w1", 3).muon);
  for (const char* name : {"embedding.weight", "positions.weight", "head.weight"}) {
    EXPECT_FALSE(rules.Of(name, 2).muon) << name;
  }
  EXPECT_FALSE(rules.Of("layers.0.wk.weight", 2).muon);
  EXPECT_FALSE(rules.Of("norm.weight", 1).muon);
  EXPECT_EQ(rules.Of("norm.weight", 1).lr_scale, 0.5);
  EXPECT_EQ(rules.Of("norm.weight", 1).weight_decay, 0);
}

}  // namespace
}  // namespace penstock
