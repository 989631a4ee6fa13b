#include "model_spec/models/moe_options.h"

#include <fmt/format.h>

#include <iterator>
#include <string>

#include "base/text/numbers.h"

namespace penstock {

std::vector<Field> MoeOptions::Fields() {
  std::vector<Field> fields = DecoderOptions::Fields();
  std::ranges::move(moe.Fields(), std::back_inserter(fields));
  return fields;
}

void MoeOptions::Resolve(const ModelConfig& config) {
  DecoderOptions::Resolve(config);
  moe.hidden = ExpertHiddenOf(config.dim);
  if (moe.dense_layers == 0) hidden = moe.hidden;   // no layer has it
  if (moe.balance == "loss") moe.balance = "none";  // only training adds the term
}

Status MoeOptions::Check(const ModelConfig& config) const {
  PENSTOCK_TRY_STATUS(moe.Check());
  return DecoderOptions::Check(config);
}

namespace {

// Rounds to the digits that every decimal number keeps, so that writing undoes reading.
std::string Rounded(double value) { return fmt::format("{:.15g}", value); }

double ExpertLayersPerChoice(std::int64_t expert_layers, std::int64_t top_k) {
  return static_cast<double>(expert_layers) / static_cast<double>(top_k);
}

// Returns an option of a model that has not been checked yet; 0 if it is not a size.
std::int64_t UncheckedSize(const ModelConfig& config, const char* key) {
  const auto found = config.options.find(key);
  const double size = found == config.options.end() ? 0 : ParseNumber(found->second).value_or(0);
  return size >= 0 && size <= kMostModelSize ? static_cast<std::int64_t>(size) : 0;
}

}  // namespace

void FromRouterAuxLoss(ModelConfig& config) {
  const std::int64_t top_k = UncheckedSize(config, "top_k");
  const std::int64_t expert_layers = config.layers - UncheckedSize(config, "dense_layers");
  std::string& given = config.options["balance_loss"];
  const auto coefficient = ParseNumber(given);
  if (!coefficient || top_k < 1 || expert_layers < 1) return;
  given = fmt::format("{}", *coefficient / ExpertLayersPerChoice(expert_layers, top_k));
}

double RouterAuxLossOf(const ModelConfig& config, const ExpertOptions& options) {
  const double per_layer = options.balance == "loss" ? options.balance_loss : 0;
  const std::int64_t expert_layers = config.layers - options.dense_layers;
  return std::stod(Rounded(per_layer * ExpertLayersPerChoice(expert_layers, options.top_k)));
}

std::vector<HuggingFaceTensor> MoeNames() {
  std::vector<HuggingFaceTensor> names = DecoderNames();
  constexpr auto kPerExpert = TensorLayout::kPerExpert;
  names.insert(
      names.end(),
      {{"layers.N.router.weight", "model.layers.N.mlp.gate.weight"},
       {"layers.N.router.bias", "model.layers.N.mlp.gate.e_score_correction_bias"},
       {"layers.N.experts.w1.weight", "model.layers.N.mlp.experts.E.gate_proj.weight", kPerExpert},
       {"layers.N.experts.w2.weight", "model.layers.N.mlp.experts.E.down_proj.weight", kPerExpert},
       {"layers.N.experts.w3.weight", "model.layers.N.mlp.experts.E.up_proj.weight", kPerExpert},
       {"layers.N.shared.w1.weight", "model.layers.N.mlp.shared_experts.gate_proj.weight"},
       {"layers.N.shared.w2.weight", "model.layers.N.mlp.shared_experts.down_proj.weight"},
       {"layers.N.shared.w3.weight", "model.layers.N.mlp.shared_experts.up_proj.weight"}});
  return names;
}

}  // namespace penstock
