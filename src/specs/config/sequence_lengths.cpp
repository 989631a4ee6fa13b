#include "config/sequence_lengths.h"

#include <algorithm>
#include <numeric>

#include "base/index.h"
#include "base/text/numbers.h"

namespace penstock {

namespace {

// Whether a term of the loss balances the load of experts. It is not linear in the load, so that of
// slices does not add up to that of their microbatch.
bool HasBalanceLoss(const ModelConfig& model) {
  const auto option = [&](const char* key) {
    const auto found = model.options.find(key);
    return found == model.options.end() ? std::string() : found->second;
  };
  const Result<double> factor = ParseNumber(option("balance_loss"));
  return option("balance") == "loss" && !(factor && *factor == 0);
}

}  // namespace

Status CheckSlices(const TrainConfig& config) {
  const int slices = config.pipeline.slices;
  const std::vector<std::int64_t>& lengths = config.pipeline.slice_lengths;
  const std::int64_t sum = std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
  if (!lengths.empty() && (lengths.size() != Index(slices) || sum != config.model.sequence)) {
    return InvalidParameter("pipeline.slice_lengths",
                            ": {} lengths with {} tokens in total, but there are {} slices of a "
                            "sequence of {}",
                            lengths.size(), sum, slices, config.model.sequence);
  }
  if (slices == 1) return {};
  if (config.data.document_mask) {
    return InvalidParameter("data.document_mask",
                            ": needs whole sequences, not the {} slices of pipeline.slices",
                            slices);
  }
  if (HasBalanceLoss(config.model)) {
    return InvalidParameter(
        "model.balance",
        "loss: the term needs the load of whole sequences, not of the {} slices of "
        "pipeline.slices: set model.balance=none, or model.balance_loss=0",
        slices);
  }
  if (lengths.empty() && config.model.sequence % slices != 0) {
    const auto error = InvalidParameter(
        "model.sequence", "{} does not divide into {} equal slices: set pipeline.slice_lengths",
        config.model.sequence, slices);
    return tl::unexpected(Located(error.value(), config, {"pipeline.slices"}));
  }
  if (config.compiled.empty()) return {};
  return InvalidParameter(
      "compiled",
      ": stages in files run whole sequences, not {} slices (pipeline.slices); remove it", slices);
}

Status CheckLengths(const TrainConfig& config, const Schedule& schedule) {
  const std::vector<std::int64_t>& lengths = config.data.lengths;
  if (lengths.empty()) return {};
  if (std::ranges::max(lengths) != config.model.sequence) {
    return InvalidParameter(
        "data.lengths", ": the longest is {}, but model.sequence is {}; set it to {}",
        std::ranges::max(lengths), config.model.sequence, std::ranges::max(lengths));
  }
  if (config.pipeline.microbatches % std::ssize(lengths) != 0) {
    return InvalidParameter(
        "data.lengths", ": the microbatches of a step ({}) are not a multiple of the {} lengths",
        config.pipeline.microbatches, lengths.size());
  }
  const char* refused = nullptr;
  if (config.pipeline.slices > 1) refused = "pipeline.slices";
  if (config.parallel.expert > 1) refused = "parallel.expert";
  if (schedule.weights != WeightPolicy::kFlush) refused = "a schedule without a flush";
  if (!config.compiled.empty()) refused = "compiled";
  if (!config.data.blend.empty()) refused = "data.blend";
  if (HasPredictor(config)) refused = "model.predictor";
  if (refused == nullptr) return {};
  return InvalidParameter("data.lengths", "cannot be used with {}: remove one of them", refused);
}

std::int64_t TokensOfRank(const TrainConfig& config, std::int64_t tokens) {
  return ContextTokens(tokens, config.parallel.context);
}

bool HasPredictor(const TrainConfig& config) {
  const auto predictor = config.model.options.find("predictor");
  return predictor != config.model.options.end() && predictor->second != "0";
}

std::vector<std::int64_t> MicrobatchLengths(const TrainConfig& config) {
  if (config.data.lengths.empty()) return {};
  std::vector<std::int64_t> lengths;
  for (int microbatch = 0; microbatch < config.pipeline.microbatches; ++microbatch) {
    lengths.push_back(config.data.lengths[Index(microbatch) % config.data.lengths.size()]);
  }
  return lengths;
}

std::int64_t TokensPerStep(const TrainConfig& config) {
  const std::vector<std::int64_t> lengths = MicrobatchLengths(config);
  const std::int64_t of_samples =
      lengths.empty() ? config.pipeline.microbatches * config.model.sequence
                      : std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
  return config.batch * of_samples;
}

std::vector<std::int64_t> SliceLengths(const TrainConfig& config) {
  if (!config.pipeline.slice_lengths.empty()) return config.pipeline.slice_lengths;
  const std::size_t slices = config.pipeline.slices;
  return std::vector<std::int64_t>(slices, config.model.sequence / config.pipeline.slices);
}

}  // namespace penstock
