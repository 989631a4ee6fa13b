#include "cost_model/recompute.h"

#include <span>
#include <utility>

#include "base/text/nearest.h"
#include "base/text/numbers.h"
#include "base/text/quote.h"
#include "cost_model/layer_work.h"

namespace penstock {
namespace {

constexpr std::pair<std::string_view, int> kModules[] = {
    {"op", kNotKeptByOp},  // first, because others do not have it
    {"norm", kNorm},
    {"layernorm", kNorm},
    {"core_attn", kCoreAttention},
    {"mla_up_proj", kLatentUp},
    {"mlp", kFeedForward},
    {"act", kActivation},
    {"moe_act", kActivation},
    {"moe", kExpertsModule},
    {"shared_experts", kSharedExperts},
};

// core/pipeline_parallel/fine_grained_activation_offload.py of Megatron-LM.
constexpr std::pair<std::string_view, int> kOffloadedModules[] = {
    {"attn_norm", kAttentionInput},
    {"qkv_linear", kProjectedInputs},
    {"core_attn", kCoreAttention | kLatentUp},
    {"attn_proj", kAttentionOutput},
    {"mlp_norm", kFeedForwardInput},
    {"expert_fc1", kExpertRows},
    {"moe_act", kExpertActivation},
};

Result<int> ParseModules(std::string_view text,
                         std::span<const std::pair<std::string_view, int>> known,
                         const char* example) {
  int modules = 0;
  while (!text.empty()) {
    const std::string_view name = text.substr(0, text.find_first_of(", "));
    text.remove_prefix(std::min(text.size(), name.size() + 1));
    if (name.empty()) continue;
    int found = 0;
    std::vector<std::string_view> names;
    for (const auto& [module, bit] : known) {
      names.push_back(module);
      if (module == name) found = bit;
    }
    if (found == 0) {
      return InvalidArgument("no module is called {}{}", Quote(name), Suggestion(name, names));
    }
    modules |= found;
  }
  if (modules == 0) return InvalidArgument("name the modules ({})", example);
  return modules;
}

}  // namespace

Result<Recompute> ParseRecompute(std::string_view text, bool by_op) {
  using enum Recompute::Method;
  const std::size_t colon = text.find(':');
  const std::string_view name = text.substr(0, colon);
  const std::string rest(colon == std::string_view::npos ? "" : text.substr(colon + 1));
  if (name == "selective") {
    const auto known = std::span(kModules).subspan(by_op ? 0 : 1);
    const std::string_view usual = by_op ? "op" : "core_attn";
    PENSTOCK_TRY(const int modules,
                 ParseModules(colon == text.npos ? usual : rest, known, "selective:core_attn,mlp"));
    return Recompute{kSelective, 1, modules};
  }
  if (colon == text.npos && name == "none") return Recompute{};
  if (colon == text.npos && name == "full") return Recompute{kUniform};
  const auto layers = ParseInt(rest);
  if ((name == "full" || name == "uniform" || name == "block") && layers && *layers >= 1) {
    return Recompute{name == "block" ? kBlock : kUniform, *layers};
  }
  return InvalidArgument("give {}", kRecomputeForms);
}

Result<int> ParseOffloadedModules(std::string_view text) {
  return ParseModules(text, kOffloadedModules, "expert_fc1,moe_act");
}

}  // namespace penstock
