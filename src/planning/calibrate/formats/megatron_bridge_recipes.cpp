#include "calibrate/formats/megatron_bridge_recipes.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "cost_model/published_models.h"

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
  // The patch of February, 2026-02-01, has HybridEP.
  if (run.device == "b200" && run.release <= kFeb26) recipe.dispatcher = "all-to-all";
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

// The layers of Llama 3 70B whose activations are offloaded where its weights are sharded.
int Offloaded(const BridgeRun& run) {
  if (run.precision == "fp8") {
    return run.device == "gb200" ? 40 : run.device == "gb300" ? 20 : run.device == "b200" ? 5 : 0;
  }
  if (run.precision != "bf16") return 0;
  return run.device == "gb200" ? 20 : run.device == "gb300" ? 30 : 0;
}

}  // namespace

Status SetLayout(const CsvRow& row, const BridgeStages& stages, RunTexts& texts) {
  const int count = stages.ranks == 1 ? 1 : stages.ranks * stages.chunks;
  if (count == 1) return {};
  const auto shape = FindPublishedModel(stages.model);
  if (!shape) return RefuseCell(row, "model", "its sizes are unknown");
  const int layers = static_cast<int>(shape->layers);
  if (layers % count == 0) return {};
  // Embedding and loss count as layers.
  const int most = (layers + 2 + count - 1) / count;
  std::vector<int> counts(static_cast<std::size_t>(count), most);
  const bool fills_from_front = stages.model == "deepseek-v3" || stages.model == "kimi-k2";
  if (fills_from_front) {
    // The last stage may have no layer but the loss (Et|(tt|)*30mL); then the first has fewer.
    counts.back() = std::max(0, layers - most * (count - 1));
    counts.front() = layers - most * (count - 2) - counts.back();
  } else {
    counts.front() = most - 1;
    counts.back() = layers - most * (count - 2) - (most - 1);
  }
  if (counts.front() < 0 || counts.back() < 0) {
    return RefuseCell(row, "pp", fmt::format("{} stages do not divide {} layers", count, layers));
  }
  texts.Set("layout", fmt::format("{}", fmt::join(counts, ",")));
  return {};
}

BridgeRecipe BridgeRecipeOf(const BridgeRun& run) {
  BridgeRecipe recipe;
  recipe.has_experts = !run.model.starts_with("llama") && run.model != "nemotron-h-56b";
  if (run.model.starts_with("nemotron")) recipe.graphs = run.device == "h100" ? "none" : "partial";
  if (run.model == "deepseek-v3") SetDeepseek(run, recipe);
  if (run.model == "kimi-k2") {
    recipe.recompute = "selective:mla_up_proj";
    recipe.graphs = IsGrace(run.device) ? "partial" : "none";
  }
  if (run.model == "qwen3-30b-a3b") SetQwen30(run, recipe);
  if (run.model == "qwen3-235b-a22b") SetQwen235(run, recipe);
  if (run.model == "gpt-oss-120b") SetGptOss(run, recipe);
  if (run.model == "llama-3-8b") {
    recipe.graphs = run.device == "h100" ? "none" : "full";
    if (run.device == "h100") recipe.recompute = "block:5";
  }
  const bool is_large_nemotron = run.model == "nemotron-3-super" || run.model == "nemotron-3-ultra";
  if (is_large_nemotron && run.precision == "nvfp4") recipe.plain_layers_at_end = 14;
  if (run.model == "llama-3-70b" && run.shards_weights) recipe.offloaded_layers = Offloaded(run);
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
  if (recipe.offloaded_layers > 0) texts.Set("offloaded_layers", recipe.offloaded_layers);
  if (recipe.plain_layers_at_end > 0) {
    texts.Set("layers_at_end_in_bf16", recipe.plain_layers_at_end);
  }
  if (!recipe.has_experts) return;
  texts.Set("dispatcher", recipe.dispatcher);
  if (recipe.fused_experts) texts.Set("fused_experts", "true");
  if (recipe.overlapped_experts) texts.Set("overlapped_experts", "true");
  if (recipe.fp8_attention) texts.Set("fp8_attention", "true");
}

}  // namespace penstock
