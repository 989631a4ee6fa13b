// NVIDIA's performance pages of Megatron-Bridge (docs/performance-summary of NVIDIA-NeMo/Megatron-
// Bridge). What they do not print follows from its recipes: scripts/performance/configs at v0.2.0
// to v0.5.0 and src/megatron/bridge/perf_recipes.
#include <algorithm>
#include <array>

#include "base/text/numbers.h"
#include "base/text/quote.h"
#include "calibrate/formats/format.h"
#include "calibrate/formats/megatron_bridge_recipes.h"
#include "calibrate/formats/megatron_defaults.h"

namespace penstock {
namespace {

struct BridgeModel {
  std::string_view printed, name;
  bool has_experts = false;
  int predictors = 0;  // that it trains with, if its sizes do not say so
};
constexpr BridgeModel kModels[] = {
    {"DeepSeekV3", "deepseek-v3", true, 1},
    {"Kimi_K2", "kimi-k2", true},
    {"Kimi K2", "kimi-k2", true},
    {"Qwen3_30B_a3B", "qwen3-30b-a3b", true},
    {"Qwen3_235B_a22B", "qwen3-235b-a22b", true},
    {"Qwen3_Next_80B_a3B", "qwen3-next-80b-a3b", true, 1},
    {"GPT OSS 120B", "gpt-oss-120b", true},
    {"GPT OSS 20B", "gpt-oss-20b", true},
    {"Nemotron_3_Nano", "nemotron-3-nano", true},
    {"Nemotron_3_5_Lightning", "nemotron-3.5-lightning", true},
    {"Nemotron_3_Super", "nemotron-3-super", true, 2},
    {"Nemotron_3_Ultra", "nemotron-3-ultra", true, 2},
    {"NemotronH_56B", "nemotron-h-56b", false},
    {"LLAMA3_8B", "llama-3-8b", false},
    {"LLAMA3_70B", "llama-3-70b", false},
    {"LLAMA3.1_405B", "llama-3-405b", false},
};

// "FP8-CS (FP8-MX)" and "1 (2)" are two runs of which the first counts.
std::string_view FirstOf(std::string_view text) {
  return text.substr(0, std::min(text.find(" ("), text.size()));
}

Result<double> FirstNumber(const CsvRow& row, std::string_view column) {
  const auto number = ParseNumber(FirstOf(row.Text(column)));
  if (number && *number >= 0) return *number;
  return RefuseCell(row, column, "a number is needed");
}

// "n/a" is 1.
Result<int> RanksIn(const CsvRow& row, std::string_view column) {
  if (row.Text(column) == "n/a") return 1;
  const auto number = ParseInt(FirstOf(row.Text(column)));
  if (number && *number >= 1) return *number;
  return RefuseCell(row, column, "a whole number of at least 1, or n/a, is needed");
}

Result<const BridgeModel*> ModelOf(const CsvRow& row) {
  const auto found = std::ranges::find(kModels, FirstOf(row.Text("model")), &BridgeModel::printed);
  if (found != std::end(kModels)) return found;
  return RefuseCell(row, "model", "its sizes are unknown or cannot be expressed");
}

Result<std::string> DeviceOf(const CsvRow& row) {
  constexpr std::string_view kBegin = "DGX-";
  std::string name(row.Text("system"));
  if (!name.starts_with(kBegin)) return RefuseCell(row, "system", "DGX-DEVICE is needed");
  name.erase(0, kBegin.size());
  std::ranges::transform(name, name.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return name;
}

// FP8 alone is current scaling, but blockwise for DeepSeek-V3 on H100.
Result<std::string> PrecisionOf(const CsvRow& row, const BridgeModel& model,
                                std::string_view device) {
  const std::string_view printed = FirstOf(row.Text("precision"));
  if (printed == "BF16") return "bf16";
  if (printed == "NVFP4") return "nvfp4";
  if (printed == "MXFP8" || printed == "FP8-MX") return "mxfp8";
  if (printed == "FP8-CS") return "fp8";
  if (printed == "FP8") {
    return model.name == "deepseek-v3" && device == "h100" ? "fp8-blockwise" : "fp8";
  }
  return RefuseCell(row, "precision", "BF16, FP8, FP8-CS, FP8-MX, MXFP8 or NVFP4 is needed");
}

// "26.02.01" is 2026-02-01, which sorts as releases do.
Result<std::string> ReleaseOf(const CsvRow& row) {
  const std::string text(row.Text("release"));
  const bool fits = (text.size() == 5 || text.size() == 8) && text[2] == '.' &&
                    (text.size() == 5 || text[5] == '.');
  if (!fits) return RefuseCell(row, "release", "YY.MM or YY.MM.NN is needed");
  std::string release = "20" + text;
  std::ranges::replace(release, '.', '-');
  return release;
}

struct BridgeRanks {
  int tensor = 1, pipeline = 1, context = 1, chunks = 1, expert = 1, replicas = 1;
};

Result<BridgeRanks> ReadRanks(const CsvRow& row, int gpus) {
  BridgeRanks ranks;
  PENSTOCK_TRY(ranks.tensor, RanksIn(row, "tp"));
  PENSTOCK_TRY(ranks.pipeline, RanksIn(row, "pp"));
  PENSTOCK_TRY(ranks.context, RanksIn(row, "cp"));
  PENSTOCK_TRY(ranks.chunks, RanksIn(row, "vp"));
  PENSTOCK_TRY(ranks.expert, RanksIn(row, "ep"));
  PENSTOCK_TRY(ranks.replicas,
               ReplicasOf(row, "gpus", gpus, ranks.tensor * ranks.pipeline * ranks.context));
  return ranks;
}

void SetRanks(const BridgeRanks& ranks, bool has_experts, RunTexts& texts) {
  texts.Set("ranks", ranks.pipeline);
  if (ranks.pipeline > 1) SetUnlessOne("chunks", ranks.chunks, texts);
  SetUnlessOne("tensor", ranks.tensor, texts);
  SetUnlessOne("context", ranks.context, texts);
  texts.Set("data_parallel", ranks.replicas);
  if (!has_experts) return;
  SetUnlessOne("expert", ranks.expert, texts);
  if (ranks.tensor > 1) texts.Set("expert_tensor", 1);
}

// States are sharded by the distributed optimizer, or with the weights by FSDP.
Status SetSharding(const CsvRow& row, const BridgeRanks& ranks, RunTexts& texts) {
  PENSTOCK_TRY(const double fsdp, FirstNumber(row, "fsdp"));
  if (ranks.replicas * ranks.context > 1) texts.Set("zero", fsdp > 0 ? 3 : 1);
  if (fsdp > 0 && fsdp < ranks.replicas) texts.Set("zero_ranks", static_cast<int>(fsdp));
  return {};
}

// What the model's name says in parentheses, and its extra predictors.
void SetVariant(const CsvRow& row, const BridgeModel& model, RunTexts& texts) {
  const auto says = [&](std::string_view words) {
    return row.Text("model").find(words) != std::string_view::npos;
  };
  if (says("tokendrop")) texts.Set("drops_tokens", "true");
  if (model.predictors > 0) texts.Set("predictors", says("w/o MTP") ? 0 : model.predictors);
}

}  // namespace

Result<RunTexts> ReadMegatronBridgeRow(const CsvRow& row) {
  PENSTOCK_TRY(const BridgeModel* model, ModelOf(row));
  PENSTOCK_TRY(const std::string device, DeviceOf(row));
  PENSTOCK_TRY(const std::string precision, PrecisionOf(row, *model, device));
  PENSTOCK_TRY(const std::string release, ReleaseOf(row));
  PENSTOCK_TRY(const int gpus, row.Count("gpus"));
  PENSTOCK_TRY(const int sequence, row.Count("seq"));
  PENSTOCK_TRY(const int micro_batch, row.Count("mbs"));
  PENSTOCK_TRY(const BridgeRanks ranks, ReadRanks(row, gpus));
  PENSTOCK_TRY(const int microbatches, MicrobatchesOf(row, "gbs", micro_batch, ranks.replicas));
  RunTexts texts;
  texts.Set("model", model->name);
  texts.Set("device", device);
  texts.Set("nodes", NodesOf(gpus, device.starts_with("gb") ? 4 : 8));
  texts.Set("precision", precision);
  texts.usual = {{"implementation", "transformer-engine"}};
  texts.Set("release", release);
  texts.Set("sequence", sequence);
  texts.Set("micro_batch_size", micro_batch);
  texts.Set("microbatches", microbatches);
  if (row.Text("task") == "LoRA") texts.Set("lora", "true");
  SetVariant(row, *model, texts);
  SetRanks(ranks, model->has_experts, texts);
  PENSTOCK_TRY_STATUS(SetSharding(row, ranks, texts));
  const bool shards_weights = row.Text("fsdp") != "0";
  SetRecipe(BridgeRecipeOf({model->name, device, precision, release, shards_weights}), texts);
  PENSTOCK_TRY_STATUS(SetLayout(row, {model->name, ranks.pipeline, ranks.chunks}, texts));
  PENSTOCK_TRY(texts.tokens_per_second_per_device, FirstNumber(row, "tok_s_gpu"));
  return texts;
}

}  // namespace penstock
