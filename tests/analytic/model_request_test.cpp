// Every refusal of a request says which field it is about.
#include "analytic/request/model_request.h"

#include <gtest/gtest.h>

namespace penstock {
namespace {

TEST(ModelRequest, ErrorsNameTheField) {
  struct Case {
    std::string field;
    ModelRequest request;
  };
  const std::vector<Case> cases = {{"model", {.model = "gtp2"}},
                                   {"model", {.model = "openai/gpt2"}},
                                   {"device", {.device = "h110"}},
                                   {"nodes", {.nodes = "8y8"}},
                                   {"nodes", {.nodes = "4"}},
                                   {"precision", {.precision = "fp12"}},
                                   {"micro_batch_size", {.micro_batch_size = 0}},
                                   {"sequence", {.sequence = 0}},
                                   {"sequence", {.sequence = 2048}},
                                   {"tensor", {.tensor = 0}},
                                   {"tensor", {.tensor = 3}},
                                   {"tensor", {.nodes = "2x8", .tensor = 16}},
                                   {"tensor", {.tensor = 8}},
                                   {"data_parallel", {.data = 0}},
                                   {"data_parallel", {.data = 3}},
                                   {"expert", {.expert = -1}},
                                   {"expert", {.data = 2, .expert = 2}},
                                   {"zero", {.zero = 4}},
                                   {"zero", {.zero = 1}},
                                   {"flops_efficiency", {.flops_efficiency = 2}},
                                   {"bandwidth_efficiency", {.bandwidth_efficiency = 0}},
                                   {"hidden_communication", {.hidden_communication = -1}}};
  for (auto [field, request] : cases) {
    if (!request.model) request.model = "gpt2";
    const auto refused = request.Load();
    ASSERT_FALSE(refused) << field;
    EXPECT_EQ(refused.error().parameter, field) << refused.error().line();
    EXPECT_EQ(refused.error().line().find("--"), std::string::npos) << refused.error().line();
  }
}

}  // namespace
}  // namespace penstock
