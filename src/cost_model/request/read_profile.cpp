#include "cost_model/request/read_profile.h"

#include <algorithm>

#include "base/units.h"
#include "cost_model/microbatch.h"
#include "cost_model/request/read_name.h"

namespace penstock {
namespace {

Status CheckPart(const char* name, const std::optional<double>& value, bool may_be_zero) {
  if (!value || (*value <= 1 && (*value > 0 || (may_be_zero && *value == 0)))) return {};
  if (may_be_zero) return InvalidParameter(name, "{}: 0 to 1 is needed", *value);
  return InvalidParameter(name, "{}: more than 0 and at most 1 is needed", *value);
}

Status CheckParts(const ModelRequest& request) {
  PENSTOCK_TRY_STATUS(CheckPart("flops_efficiency", request.flops_efficiency, false));
  PENSTOCK_TRY_STATUS(CheckPart("bandwidth_efficiency", request.bandwidth_efficiency, false));
  PENSTOCK_TRY_STATUS(CheckPart("link_efficiency", request.link_efficiency, false));
  PENSTOCK_TRY_STATUS(CheckPart("network_efficiency", request.network_efficiency, false));
  PENSTOCK_TRY_STATUS(CheckPart("hidden_communication", request.hidden_communication, true));
  return CheckPart("hidden_gradients", request.hidden_gradients, true);
}

// "2026-04" or, with the number of a patch, "2026-04-01".
bool IsRelease(std::string_view text) {
  constexpr std::string_view kForm = "0000-00-00";
  if (text.size() != 7 && text.size() != kForm.size()) return false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool is_digit = text[i] >= '0' && text[i] <= '9';
    if (kForm[i] == '0' ? !is_digit : text[i] != '-') return false;
  }
  return true;
}

Status SetTime(const char* field, const std::optional<std::string>& text, double& seconds) {
  if (!text) return {};
  const Result<double> parsed = ParseSeconds(*text);
  if (!parsed || *parsed < 0) {
    return InvalidParameter(field, "{}: give a time with its unit (5us)", Quote(*text));
  }
  seconds = *parsed;
  return {};
}

// Returns a part of a whole times a factor; 0, which stands for another part, stays 0.
double Scaled(double part, double factor) { return std::min(part * factor, std::max(part, 1.0)); }

double HiddenPart(double hidden, double exposed_factor) {
  if (exposed_factor == 1) return hidden;  // without rounding
  return 1 - std::min((1 - hidden) * exposed_factor, 1.0);
}

void Multiply(const SpeedFactors& factors, Speeds& speeds) {
  for (double& part : speeds.matmul) part = Scaled(part, factors.matmul);
  speeds.memory = Scaled(speeds.memory, factors.memory);
  speeds.link = Scaled(speeds.link, factors.link);
  speeds.expert_link = Scaled(speeds.expert_link, factors.link);
  speeds.network = Scaled(speeds.network, factors.network);
  speeds.expert_network = Scaled(speeds.expert_network, factors.network);
  speeds.hidden_tensor = HiddenPart(speeds.hidden_tensor, factors.exposed_communication);
  speeds.hidden_expert = HiddenPart(speeds.hidden_expert, factors.exposed_communication);
  speeds.hidden_gradients = HiddenPart(speeds.hidden_gradients, factors.exposed_gradients);
  speeds.device_launch *= factors.device_launch;
  speeds.host_launch *= factors.host_launch;
}

}  // namespace

Result<Profile> ReadProfile(const ModelRequest& request) {
  Profile profile;
  if (request.implementation) {
    auto found = FindImplementation(*request.implementation);
    if (!found) return InvalidParameter("implementation", "{}", found.error().line());
    profile.implementation = *found;
  }
  PENSTOCK_TRY(
      profile.attention,
      ReadName<AttentionKernel>("attention", request.attention.value_or("auto"), kAttentionNames));
  PENSTOCK_TRY(
      profile.graphs,
      ReadName<CudaGraphs>("cuda_graphs", request.cuda_graphs.value_or("none"), kCudaGraphsNames));
  PENSTOCK_TRY(profile.dispatcher,
               ReadName<Dispatcher>("dispatcher", request.dispatcher.value_or("all-to-all"),
                                    kDispatcherNames));
  for (const auto& [given, flag] : {std::pair(&request.dropout, &profile.dropout),
                                    {&request.deterministic, &profile.deterministic},
                                    {&request.fused_loss, &profile.fused_loss},
                                    {&request.fused_experts, &profile.fused_experts},
                                    {&request.overlapped_experts, &profile.overlapped_experts},
                                    {&request.fp8_attention, &profile.fp8_attention},
                                    {&request.linear_biases, &profile.linear_biases},
                                    {&request.grouped_experts, &profile.grouped_experts},
                                    {&request.attention_mask, &profile.attention_mask},
                                    {&request.drops_tokens, &profile.drops_tokens},
                                    {&request.lora, &profile.lora}}) {
    *flag = given->value_or(*flag);
  }
  PENSTOCK_TRY_STATUS(CheckPart("fragmentation", request.fragmentation, true));
  profile.fragmentation = request.fragmentation.value_or(0);
  profile.deferred_head = request.deferred_head.value_or(0);
  profile.layers_at_end_in_bf16 = request.layers_at_end_in_bf16.value_or(0);
  profile.offloaded_layers = request.offloaded_layers.value_or(0);
  if (request.release && !IsRelease(*request.release)) {
    return InvalidParameter("release", "{}: YYYY-MM is needed", Quote(*request.release));
  }
  profile.release = request.release.value_or("");
  return profile;
}

Result<Speeds> ReadSpeeds(const ModelRequest& request, const Microbatch& batch) {
  PENSTOCK_TRY_STATUS(CheckParts(request));
  Speeds speeds = batch.profile.get().speeds;
  if (request.flops_efficiency) {
    // Quantized and plain matmuls keep their relation.
    const double factor = *request.flops_efficiency / speeds.of(batch.precision);
    for (double& part : speeds.matmul) part *= factor;
  }
  if (request.bandwidth_efficiency) {
    speeds.memory = speeds.link = speeds.network = *request.bandwidth_efficiency;
  }
  // A given efficiency also applies to the exchanges of experts.
  if (request.bandwidth_efficiency || request.link_efficiency) speeds.expert_link = 0;
  if (request.bandwidth_efficiency || request.network_efficiency) speeds.expert_network = 0;
  speeds.link = request.link_efficiency.value_or(speeds.link);
  speeds.network = request.network_efficiency.value_or(speeds.network);
  if (request.hidden_communication) {
    speeds.hidden_tensor = speeds.hidden_expert = *request.hidden_communication;
  }
  speeds.hidden_gradients = request.hidden_gradients.value_or(speeds.hidden_gradients);
  PENSTOCK_TRY_STATUS(SetTime("device_launch", request.device_launch, speeds.device_launch));
  PENSTOCK_TRY_STATUS(SetTime("host_launch", request.host_launch, speeds.host_launch));
  Multiply(request.speed_factors, speeds);
  return speeds;
}

}  // namespace penstock
