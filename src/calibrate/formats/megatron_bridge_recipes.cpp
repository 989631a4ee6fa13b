#include "calibrate/formats/megatron_bridge_recipes.h"

namespace penstock {
namespace {

// Releases in which recipes changed.
constexpr std::string_view kFeb26 = "2026-02", kApr26 = "2026-04", kApr26Patch = "2026-04-01",
                           kJun26 = "2026-06";

bool IsGrace(std::string_view device) { return device.starts_with("gb"); }

// Models of which all matmuls of a step run under full graphs from June 2026 on.
bool HasFullGraphs(const BridgeRun& run) {
  const bool of_model = run.model == "qwen3-30b-a3b" || run.model == "qwen3-235b-a22b" ||
                        run.model == "deepseek-v3" || run.model == "gpt-oss-120b";
  const bool on_device =
      IsGrace(run.device) || (run.model == "qwen3-30b-a3b" && run.device == "b300");
  return of_model && on_device && run.precision == "mxfp8" && run.release >= kJun26;
}

void SetDeepseek(const BridgeRun& run, BridgeRecipe& recipe) {
  const bool partial = run.device == "gb200" ||
                       (run.device == "gb300" && run.precision == "bf16") ||
                       (run.device == "b300" && run.release >= kApr26Patch);
  recipe.graphs = partial ? "partial" : "none";
  recipe.recompute = run.device == "h100" ? "selective:mla_up_proj,mlp" : "selective:mla_up_proj";
  if (run.release >= kFeb26) return;
  if (run.device == "b200") recipe.dispatcher = "all-to-all";
  if (run.device == "h100") {
    recipe.dispatcher = "deepep";
    recipe.overlapped_experts = true;
  }
}

void SetQwen30(const BridgeRun& run, BridgeRecipe& recipe) {
  recipe.graphs = run.device == "h100" ? "none" : "partial";
  // The string compares up to the month, so that a patch of February counts as February.
  if (run.device == "b200" && run.release.substr(0, kFeb26.size()) <= kFeb26) {
    recipe.dispatcher = "all-to-all";
  }
  if (run.device == "h100" && run.release < kFeb26) {
    recipe.dispatcher = "all-to-all";
    recipe.overlapped_experts = true;
  }
}

void SetQwen235(const BridgeRun& run, BridgeRecipe& recipe) {
  recipe.graphs = IsGrace(run.device) ? "partial" : "none";
  if (!IsGrace(run.device)) recipe.dispatcher = "all-to-all";
  recipe.overlapped_experts = run.device == "h100";
}

void SetGptOss(const BridgeRun& run, BridgeRecipe& recipe) {
  const bool has_graphs = run.device == "gb300" || run.device == "b300";
  recipe.graphs = has_graphs ? "partial" : "none";
  if (!has_graphs) recipe.recompute = "selective:norm,act";
  const bool is_new = run.release >= kApr26 && run.device != "h100" && run.device != "gb300";
  recipe.dispatcher = is_new ? "hybridep" : "all-to-all";
  recipe.overlapped_experts = is_new && run.device == "gb200";
}

}  // namespace

BridgeRecipe BridgeRecipeOf(const BridgeRun& run) {
  BridgeRecipe recipe;
  recipe.has_experts = !run.model.starts_with("llama") && run.model != "nemotron-h-56b";
  if (run.model.starts_with("nemotron")) recipe.graphs = run.device == "h100" ? "none" : "partial";
  if (run.model == "deepseek-v3") SetDeepseek(run, recipe);
  if (run.model == "kimi-k2") recipe.recompute = "selective:mla_up_proj";
  if (run.model == "qwen3-30b-a3b") SetQwen30(run, recipe);
  if (run.model == "qwen3-235b-a22b") SetQwen235(run, recipe);
  if (run.model == "gpt-oss-120b") SetGptOss(run, recipe);
  if (run.model == "llama-3-8b") {
    recipe.graphs = run.device == "h100" ? "none" : "full";
    if (run.device == "h100") recipe.recompute = "block:5";
  }
  if (!HasFullGraphs(run)) return recipe;
  recipe.graphs = "full";
  recipe.dispatcher = "hybridep";
  recipe.fused_experts = recipe.overlapped_experts = true;
  recipe.fp8_attention = run.model != "deepseek-v3" || run.device != "gb200";
  if (run.model == "deepseek-v3" && run.device == "gb300") recipe.recompute = {};
  return recipe;
}

void SetRecipe(const BridgeRecipe& recipe, RunTexts& texts) {
  if (recipe.graphs != "none") texts.Set("cuda_graphs", recipe.graphs);
  if (!recipe.recompute.empty()) texts.Set("recompute", recipe.recompute);
  if (!recipe.has_experts) return;
  texts.Set("dispatcher", recipe.dispatcher);
  if (recipe.fused_experts) texts.Set("fused_experts", "true");
  if (recipe.overlapped_experts) texts.Set("overlapped_experts", "true");
  if (recipe.fp8_attention) texts.Set("fp8_attention", "true");
}

}  // namespace penstock
