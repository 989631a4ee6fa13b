#include "train/model_fits.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "base/units.h"
#include "graph/capture/shapes_only.h"
#include "model/model.h"

namespace penstock {
namespace {

constexpr double kBytesOfValue = 4;  // fp32
constexpr double kBytesOfId = 8;

Result<double> WeightBytes(const ModelConfig& config, std::span<const LayerRange> stages) {
  std::optional<ShapesOnly> shapes;
  if (ShapesOnly::Current() == nullptr) shapes.emplace();
  double bytes = 0;
  for (const LayerRange& stage : stages) {
    PENSTOCK_TRY(const auto module, BuildUninitializedStage(config, stage));
    for (const at::Tensor& each : module->parameters()) bytes += static_cast<double>(each.nbytes());
    for (const at::Tensor& each : module->buffers()) bytes += static_cast<double>(each.nbytes());
  }
  return bytes;
}

// Token ids and hidden states, and after the last stage the logits and their logarithms.
double LeastActivations(const ModelConfig& config, std::span<const LayerRange> stages,
                        std::int64_t tokens) {
  double elements = static_cast<double>(config.dim);
  if (std::ranges::any_of(stages, &LayerRange::head)) {
    elements = std::max(elements, 2 * static_cast<double>(config.vocabulary));
  }
  return static_cast<double>(tokens) * (kBytesOfId + kBytesOfValue * elements);
}

}  // namespace

Result<AvailableMemory> AllowedMemory(const std::string& limit) {
  const AvailableMemory any{std::numeric_limits<std::int64_t>::max(), "this machine"};
  if (limit == "none") return any;
  if (limit == "auto") return ReadAvailableMemory().value_or(any);
  PENSTOCK_TRY(const std::int64_t bytes, ParseBytes(limit));
  return AvailableMemory{bytes, "max_memory"};
}

std::string BytesText(double bytes) {
  constexpr double kEib = 1024.0 * 1024 * 1024 * 1024 * 1024 * 1024;
  if (bytes >= kEib) return fmt::format("{:.3g} EiB", bytes / kEib);
  return FormatBytes(static_cast<std::int64_t>(bytes));
}

Status CheckModelFits(const ModelConfig& config, std::span<const LayerRange> stages,
                      std::int64_t tokens, const std::string& limit) {
  PENSTOCK_TRY(const AvailableMemory allowed, AllowedMemory(limit));
  const auto has = static_cast<double>(allowed.bytes);
  double weights = 0;
  try {
    PENSTOCK_TRY(weights, WeightBytes(config, stages));
  } catch (const c10::Error&) {  // a tensor has more bytes than 63 bits can count
    return InvalidArgument(
        "a tensor of the model has more than 8 EiB: use a smaller model.dim, model.hidden or "
        "model.vocabulary");
  }
  const double activations = LeastActivations(config, stages, tokens);
  if (weights + activations <= has) return {};
  return InvalidArgument(
      "the model needs at least {} of memory (weights {}, activations {}), and {} has {}: use {}",
      BytesText(weights + activations), BytesText(weights), BytesText(activations), allowed.of,
      BytesText(has),
      weights > activations ? "a smaller model" : "a smaller batch or shorter sequences");
}

}  // namespace penstock
