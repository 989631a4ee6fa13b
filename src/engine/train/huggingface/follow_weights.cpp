#include "train/huggingface/follow_weights.h"

#include <fmt/ranges.h>

#include "base/text/quote.h"
#include "tokens/kinds/open_tokenizer.h"

namespace penstock {
namespace {

constexpr std::size_t kNamedTensors = 8;

std::string UnreadLine(const std::string& folder, const std::vector<std::string>& unread) {
  const std::size_t named = std::min(unread.size(), kNamedTensors);
  std::string names = fmt::format("{}", fmt::join(unread.begin(), unread.begin() + named, ", "));
  if (named < unread.size()) names += fmt::format(" and {} more", unread.size() - named);
  return fmt::format("weights: the model has no place for {} tensor{} of {}: {}", unread.size(),
                     unread.size() == 1 ? "" : "s", Printable(folder), Printable(names));
}

}  // namespace

Result<std::vector<std::string>> FitModel(const HuggingFaceWeights& weights,
                                          const std::string& folder, ModelConfig& config) {
  std::vector<std::string> lines;
  PENSTOCK_TRY(const bool untied, weights.HasUntiedHead(config));
  if (untied) {
    config.options["tied"] = "false";
    lines.push_back(fmt::format(
        "weights: {} has a head that differs from the embedding, although its config.json ties "
        "them: both are used (model.tied is false)",
        Printable(folder)));
  }
  PENSTOCK_TRY(const std::vector<std::string> unread, weights.Unread(config));
  if (!unread.empty()) lines.push_back(UnreadLine(folder, unread));
  return lines;
}

Result<std::vector<std::string>> FollowWeights(TrainConfig& config) {
  std::vector<std::string> lines;
  if (config.weights.empty() || !HasHuggingFaceWeights(config.weights)) return lines;
  if (config.data.tokenizer.empty()) {
    auto tokenizer = TokenizerOfFolder(config.weights);
    if (!tokenizer) {
      return InvalidParameter("weights", ": {}, or set data.tokenizer", tokenizer.error().line());
    }
    config.data.tokenizer = *std::move(tokenizer);
  }
  PENSTOCK_TRY(const HuggingFaceWeights weights, HuggingFaceWeights::Open(config.weights));
  if (const auto positions = weights.Positions(config.model);
      positions && *positions < config.model.sequence) {
    return InvalidParameter("model.sequence", "{}: {} has only {} positions (n_positions)",
                            config.model.sequence, Printable(config.weights), *positions);
  }
  return FitModel(weights, config.weights, config.model);
}

}  // namespace penstock
