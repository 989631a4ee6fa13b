#include "train/evaluation/finite.h"

#include <ATen/ops/isfinite.h>

#include <cmath>

#include "base/text/quote.h"

namespace penstock {
namespace {

constexpr const char* kRemedy =
    "its training diverged; take an earlier checkpoint, or train again with a smaller optimizer.lr";

}  // namespace

Status CheckFiniteWeights(const LanguageModel& model, const std::string& where) {
  for (const auto& [name, value] : model.Parameters()) {
    if (at::isfinite(value).all().item<bool>()) continue;
    return MakeError(ErrorCode::kUnavailable,
                     "{}: the weights of {} are not finite (NaN or Inf): {}", Printable(where),
                     name, kRemedy);
  }
  return {};
}

Status CheckFiniteLoss(double loss, const std::string& where) {
  if (std::isfinite(loss)) return {};
  return MakeError(ErrorCode::kUnavailable, "{}: the loss is {}, not finite: {}", Printable(where),
                   loss, kRemedy);
}

}  // namespace penstock
