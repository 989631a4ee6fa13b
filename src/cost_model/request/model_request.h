// A model and the devices that train it, by names and numbers as users give them.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "cost_model/model_costs.h"
#include "schedule/costs.h"

namespace penstock {

inline constexpr const char* kUsualDevice = "h100";

// Sizes that replace a named model's, or describe a model without a name.
struct ModelSizes {
  std::optional<int> layers = {}, dim = {}, hidden = {}, vocabulary = {};
  std::optional<int> heads = {}, kv_heads = {}, head_dim = {};
  std::optional<int> experts = {}, top_k = {}, expert_hidden = {}, shared_experts = {},
                     shared_hidden = {};
  std::optional<int> dense_layers = {}, predictors = {}, window = {};
  std::optional<std::string> latent = {};               // "1536,512,128,64,128"
  std::optional<std::string> pattern = {}, mamba = {};  // "M-M*-", "64,64,128,8"
  std::optional<int> positions = {};
  std::optional<bool> tied = {}, gated = {}, qk_norm = {};
};

// Factors of the speeds that a request or its implementation has: prices under errors of these.
struct SpeedFactors {
  double matmul = 1, memory = 1, link = 1, network = 1;     // of efficiencies, which stay below 1
  double exposed_communication = 1, exposed_gradients = 1;  // of the part that is not hidden
  double device_launch = 1, host_launch = 1;                // of times
};

struct ModelRequest : ModelSizes {
  std::optional<std::string> model = {};   // a published name, or a config.json
  std::optional<std::string> device = {};  // a known name, or a YAML file
  std::optional<std::string> nodes = {};   // "8x8"
  std::optional<std::string> precision = {};
  std::optional<int> micro_batch_size = {}, sequence = {};
  std::optional<int> tensor = {}, data = {}, expert = {}, zero = {};
  std::optional<int> context = {}, expert_tensor = {}, zero_ranks = {};
  std::optional<std::string> context_exchange = {}, recompute = {}, layout = {};
  std::optional<bool> sequence_parallel = {};
  std::optional<double> flops_efficiency = {}, bandwidth_efficiency = {};
  std::optional<double> link_efficiency = {}, network_efficiency = {}, time_factor = {};
  std::optional<double> hidden_gradients = {}, expert_imbalance = {};
  std::optional<std::string> device_launch = {}, host_launch = {};  // "5us"
  std::optional<std::string> implementation = {}, attention = {}, cuda_graphs = {};
  std::optional<std::string> dispatcher = {}, release = {};
  std::optional<bool> dropout = {}, deterministic = {}, fused_loss = {}, fused_experts = {};
  std::optional<bool> overlapped_experts = {}, fp8_attention = {}, linear_biases = {};
  std::optional<bool> grouped_experts = {}, attention_mask = {};
  std::optional<int> deferred_head = {};
  std::optional<double> fragmentation = {};
  std::optional<std::string> offload_modules = {};  // "expert_fc1,moe_act"
  std::optional<bool> drops_tokens = {}, lora = {};
  std::optional<int> layers_at_end_in_bf16 = {}, offloaded_layers = {};
  std::optional<double> hidden_communication = {};
  std::optional<int> sites = {};
  std::optional<std::string> across_sites = {}, site_bandwidth = {}, site_latency = {};
  std::optional<std::string> failures = {}, restart = {}, storage_bandwidth = {};
  SpeedFactors speed_factors = {};
  std::optional<ModelShape> shape = {};  // if `model` is a training configuration: its model

  // Reads the model and the device. Requires: `model` is set. Errors are about a
  // field ("micro_batch_size").
  Result<ModelOnCluster> Load() const;
};

inline constexpr std::array<std::string_view, 3> kContextExchangeNames = {"ring", "all-gather",
                                                                          "ulysses"};

// Returns the costs of `replicas` chains of these stages.
Costs ChainsOf(const ModelCosts& of_model, int replicas);
// Returns the costs of `replicas` chains of a model's stages.
Result<Costs> CostsOfChains(const ModelOnCluster& model, const PipelineDivision& division,
                            int replicas);

}  // namespace penstock
