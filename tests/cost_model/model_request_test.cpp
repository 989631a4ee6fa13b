// Every refusal of a request says which field it is about.
#include "cost_model/request/model_request.h"

#include <gtest/gtest.h>

#include <functional>

namespace penstock {
namespace {

TEST(ModelRequest, ErrorsNameTheField) {
  struct Case {
    std::string field;
    std::function<void(ModelRequest&)> change;
  };
  const std::vector<Case> cases = {
      {"model", [](ModelRequest& r) { r.model = "gtp2"; }},
      {"model", [](ModelRequest& r) { r.model = "openai/gpt2"; }},
      {"device", [](ModelRequest& r) { r.device = "h110"; }},
      {"nodes", [](ModelRequest& r) { r.nodes = "8y8"; }},
      {"nodes", [](ModelRequest& r) { r.nodes = "4"; }},
      {"precision", [](ModelRequest& r) { r.precision = "fp12"; }},
      {"micro_batch_size", [](ModelRequest& r) { r.micro_batch_size = 0; }},
      {"sequence", [](ModelRequest& r) { r.sequence = 0; }},
      {"sequence", [](ModelRequest& r) { r.sequence = 2048; }},
      {"tensor", [](ModelRequest& r) { r.tensor = 0; }},
      {"tensor", [](ModelRequest& r) { r.tensor = 3; }},
      {"tensor",
       [](ModelRequest& r) {
         r.nodes = "2x8";
         r.tensor = 16;
       }},
      {"tensor", [](ModelRequest& r) { r.tensor = 8; }},
      {"data_parallel", [](ModelRequest& r) { r.data = 0; }},
      {"data_parallel", [](ModelRequest& r) { r.data = 3; }},
      {"expert", [](ModelRequest& r) { r.expert = -1; }},
      {"expert",
       [](ModelRequest& r) {
         r.data = 2;
         r.expert = 2;
       }},
      {"zero", [](ModelRequest& r) { r.zero = 4; }},
      {"zero", [](ModelRequest& r) { r.zero = 1; }},
      {"flops_efficiency", [](ModelRequest& r) { r.flops_efficiency = 2; }},
      {"bandwidth_efficiency", [](ModelRequest& r) { r.bandwidth_efficiency = 0; }},
      {"hidden_communication", [](ModelRequest& r) { r.hidden_communication = -1; }}};
  for (const auto& [field, change] : cases) {
    ModelRequest request;
    request.model = "gpt2";
    change(request);
    const auto refused = request.Load();
    ASSERT_FALSE(refused) << field;
    EXPECT_EQ(refused.error().parameter, field) << refused.error().line();
    EXPECT_EQ(refused.error().line().find("--"), std::string::npos) << refused.error().line();
  }
}

TEST(ModelRequest, FactorsScaleTheSpeeds) {
  ModelRequest request;
  request.model = "gpt2";
  request.implementation = "megatron";
  request.hidden_gradients = 0.7;
  const Speeds before = request.Load()->cluster.speeds;
  request.speed_factors = {
      .matmul = 0.5, .memory = 100, .link = 0.9, .exposed_gradients = 2, .device_launch = 3};
  const Speeds after = request.Load()->cluster.speeds;
  EXPECT_DOUBLE_EQ(after.of(Precision::kBf16), 0.5 * before.of(Precision::kBf16));
  EXPECT_EQ(after.memory, 1);  // no more than the peak
  EXPECT_DOUBLE_EQ(after.link, 0.9 * before.link);
  EXPECT_EQ(after.network, before.network);
  EXPECT_DOUBLE_EQ(after.hidden_gradients, 0.4);
  EXPECT_EQ(after.hidden_tensor, before.hidden_tensor);
  EXPECT_DOUBLE_EQ(after.device_launch, 3 * before.device_launch);
  EXPECT_EQ(after.host_launch, before.host_launch);
}

}  // namespace
}  // namespace penstock
